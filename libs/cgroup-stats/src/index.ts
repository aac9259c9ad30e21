export { toSample } from './sample/to-sample.js';
export type { SampleResult } from './sample/to-sample.js';
export { parseProcIo, parseProcMemory, sumProcesses } from './sample/process-sum.js';
export type { ProcMemory, ProcessTexts } from './sample/process-sum.js';
export { groupFiles } from './hierarchy/group-files.js';
export type { GroupPart, GroupTexts, SampleTexts } from './hierarchy/group-files.js';
export type { ContainerSample, CpuUse, MemoryUse, PidsUse, PressureUse } from './sample/sample.js';
export { cpuMillisBetween, ratesBetween } from './sample/rates.js';
export type { ContainerRates, CpuSample } from './sample/rates.js';
export { computeCapacity, computePressure, quotaToMillis } from './capacity.js';
export type { Capacity, MachineLimits, PressureConditions, PressureInput } from './capacity.js';
export {
  parseCfsQuota,
  parseCpuMax,
  parseCpuStat,
  parseCpuThrottling,
  parseCpuacctUsage,
  parseCpusAllowed,
} from './parsers/cpu.js';
export type { CpuQuota, CpuStat, CpuThrottling } from './parsers/cpu.js';
export { parseMeminfo, parseMemoryStat, workingSetBytes } from './parsers/memory.js';
export type { Meminfo, MemoryStat } from './parsers/memory.js';
export { parseAmount, parseCounter, parseLimit } from './parsers/amounts.js';
export { parseIoStat, parseThrottleIo } from './parsers/io.js';
export type { IoUse, ReadWrite } from './parsers/io.js';
export { parseNetDev } from './parsers/network.js';
export type { NetworkUse } from './parsers/network.js';
export { parsePressure } from './parsers/pressure.js';
export type { Pressure, Stall } from './parsers/pressure.js';
export { parseProcStat } from './parsers/proc-stat.js';
export type { ProcStat } from './parsers/proc-stat.js';
export {
  detectCgroupLayout,
  findGroupDirectory,
  locateCgroup,
  parseCgroupMounts,
  parseProcCgroup,
  pathInHierarchy,
} from './hierarchy/hierarchy.js';
export type {
  CgroupLayout,
  CgroupLocation,
  CgroupMembership,
  CgroupMount,
  GroupDirectory,
} from './hierarchy/hierarchy.js';
export { MalformedCgroupFileError } from './parsers/malformed.js';
