#include "hw/profile.h"

#include "base/error.h"

namespace lazytrain::hw {

Json to_json(const Profile& p) {
  return {{"name", p.name},
          {"one_memory", p.one_memory},
          {"gemm_flops", p.gemm_flops},
          {"memory_bandwidth", p.memory_bandwidth},
          {"host_bandwidth", p.host_bandwidth},
          {"launch_s", p.launch_s},
          {"links",
           {{"h2d", p.links.h2d},
            {"d2h", p.links.d2h},
            {"joint", p.links.joint},
            {"disk_read", p.links.disk_read},
            {"disk_write", p.links.disk_write}}},
          {"device_bytes", p.device_bytes},
          {"host_bytes", p.host_bytes}};
}

Profile profile_from_json(const Json& json, const std::string& where) {
  const JsonObject object(json, where);
  Profile p;
  p.name = object.string("name");
  p.one_memory = object.boolean_or("one_memory", false);
  p.gemm_flops = object.number("gemm_flops");
  p.memory_bandwidth = object.number("memory_bandwidth");
  p.host_bandwidth = object.number("host_bandwidth");
  p.launch_s = object.number_or("launch_s", 0);
  const JsonObject links = object.object("links");
  p.links = {links.number_or("h2d", 0), links.number_or("d2h", 0), links.number_or("joint", 0),
             links.number_or("disk_read", 0), links.number_or("disk_write", 0)};
  p.device_bytes = object.integer("device_bytes", 0, INT64_MAX);
  p.host_bytes = object.integer("host_bytes", 0, INT64_MAX);
  if (p.gemm_flops <= 0 || p.memory_bandwidth <= 0 || p.host_bandwidth <= 0) {
    throw InputError("{}: gemm_flops, memory_bandwidth and host_bandwidth must be above 0", where);
  }
  return p;
}

}  // namespace lazytrain::hw
