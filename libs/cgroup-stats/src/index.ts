export { toSample } from './to-sample.js';
export type { SampleResult } from './to-sample.js';
export { parseProcIo, parseProcMemory, sumProcesses } from './process-sum.js';
export type { ProcMemory, ProcessTexts } from './process-sum.js';
export { groupFiles } from './group-files.js';
export type { GroupPart, GroupTexts, SampleTexts } from './group-files.js';
export type { ContainerSample, CpuUse, MemoryUse, PidsUse, PressureUse } from './sample.js';
export { cpuMillisBetween, ratesBetween } from './rates.js';
export type { ContainerRates, CpuSample } from './rates.js';
export { computeCapacity, computePressure, quotaToMillis } from './capacity.js';
export type { Capacity, MachineLimits, PressureConditions, PressureInput } from './capacity.js';
export {
  parseCfsQuota,
  parseCpuMax,
  parseCpuStat,
  parseCpuThrottling,
  parseCpuacctUsage,
  parseCpusAllowed,
} from './cpu.js';
export type { CpuQuota, CpuStat, CpuThrottling } from './cpu.js';
export { parseMeminfo, parseMemoryStat, workingSetBytes } from './memory.js';
export type { Meminfo, MemoryStat } from './memory.js';
export { parseAmount, parseCounter, parseLimit } from './amounts.js';
export { parseIoStat, parseThrottleIo } from './io.js';
export type { IoUse, ReadWrite } from './io.js';
export { parseNetDev } from './network.js';
export type { NetworkUse } from './network.js';
export { parsePressure } from './pressure.js';
export type { Pressure, Stall } from './pressure.js';
export { parseLoadavg, parseProcStat } from './proc-stat.js';
export type { LoadAverage, ProcStat } from './proc-stat.js';
export {
  detectCgroupLayout,
  findGroupDirectory,
  locateCgroup,
  parseCgroupMounts,
  parseProcCgroup,
  pathInHierarchy,
} from './hierarchy.js';
export type {
  CgroupLayout,
  CgroupLocation,
  CgroupMembership,
  CgroupMount,
  GroupDirectory,
} from './hierarchy.js';
export { MalformedCgroupFileError } from './malformed.js';
