export { effectiveCapacity, pressureConditions, quotaToMillis } from './capacity.js';
export type { Capacity, MachineLimits, PressureConditions, PressureInput } from './capacity.js';
export { cpuMillisBetween, parseCfsQuota, parseCpuMax, parseCpuStat, parseCpuacctUsage, parseCpusAllowed } from './cpu.js';
export type { CpuQuota, CpuSample, CpuStat } from './cpu.js';
export {
  parseMeminfo,
  parseMemoryLimitInBytes,
  parseMemoryMax,
  parseMemoryStat,
  parseMemoryUsage,
  workingSetBytes,
} from './memory.js';
export type { Meminfo, MemoryStat } from './memory.js';
export { parseLoadavg, parseProcStat } from './proc-stat.js';
export type { LoadAverage, ProcStat } from './proc-stat.js';
export { detectCgroupLayout, locateCgroup, parseCgroupMounts, parseProcCgroup } from './hierarchy.js';
export type { CgroupLayout, CgroupLocation, CgroupMembership, CgroupMount } from './hierarchy.js';
export { MalformedCgroupFileError } from './malformed.js';
