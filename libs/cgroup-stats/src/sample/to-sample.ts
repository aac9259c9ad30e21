import { definedFields } from '@cloudless/base';
import { parseAmount, parseCounter, parseLimit } from '../parsers/amounts.js';
import { quotaToMillis } from '../capacity.js';
import {
  parseCfsQuota,
  parseCpuMax,
  parseCpuStat,
  parseCpuThrottling,
  parseCpuacctUsage,
  type CpuStat,
} from '../parsers/cpu.js';
import type { GroupTexts, SampleTexts } from '../hierarchy/group-files.js';
import { parseIoStat, parseThrottleIo, type IoUse } from '../parsers/io.js';
import { MalformedCgroupFileError } from '../parsers/malformed.js';
import { parseMemoryStat, workingSetBytes } from '../parsers/memory.js';
import { parseNetDev } from '../parsers/network.js';
import { parsePressure } from '../parsers/pressure.js';
import type { ContainerSample, CpuUse, MemoryUse, PidsUse, PressureUse } from './sample.js';

/**
 * A sample, and one error for each part of the sample that is absent because of a malformed file.
 */
export interface SampleResult {
  readonly sample: ContainerSample;
  readonly problems: readonly MalformedCgroupFileError[];
}

/**
 * Builds a sample from the texts of its files. A malformed file makes its part of the sample
 * absent, and no other part.
 * @param source - Identity of the counters, see {@link ContainerSample}.
 * @param atMs - Monotonic time in milliseconds at which the CPU counter was read.
 */
export function toSample(
  source: string,
  atMs: number,
  { groups, netDev }: SampleTexts,
): SampleResult {
  const problems: MalformedCgroupFileError[] = [];
  const tryRead = <Key extends keyof ContainerSample>(
    key: Key,
    read: () => ContainerSample[Key] | undefined,
  ) => {
    try {
      const value = read();
      return value === undefined ? {} : { [key]: value };
    } catch (reason) {
      if (!(reason instanceof MalformedCgroupFileError)) throw reason;
      problems.push(reason);
      return {};
    }
  };
  const sample: ContainerSample = {
    source,
    ...detectOrigin(groups),
    atMs,
    ...tryRead('cpu', () => toCpu(groups)),
    ...tryRead('memory', () => toMemory(groups.memory)),
    ...tryRead('io', () => toIo(groups.io)),
    ...tryRead('network', () => (netDev === undefined ? undefined : parseNetDev(netDev))),
    ...tryRead('pids', () => toPids(groups.pids)),
    ...tryRead('pressure', () => toPressure(groups.unified)),
  };
  return { sample, problems };
}

/** Returns the origin of the counters by the versions of the groups that have files. */
function detectOrigin(groups: SampleTexts['groups']): Pick<ContainerSample, 'origin'> {
  const versions = new Set(
    Object.values(groups).flatMap(({ version, texts }) =>
      Object.keys(texts).length > 0 ? [version] : [],
    ),
  );
  if (versions.size > 1) return { origin: 'hybrid' };
  const [version] = versions;
  return version === undefined ? {} : { origin: version === 1 ? 'v1' : 'v2' };
}

/**
 * Builds the CPU part. v1 has the time in `cpuacct` and the throttling in `cpu`. v2 has both in
 * `cpu.stat`, which contains the time even when the CPU controller is not enabled.
 */
function toCpu({ cpu, cpuacct, unified }: SampleTexts['groups']): CpuUse | undefined {
  const accountedCpu = toAccountedCpu(readGroup(cpuacct));
  const stat =
    accountedCpu ?? readGroup(unified).parse('cpu.stat', (_, text) => parseCpuStat(text));
  if (stat === undefined) return undefined;
  const { throttling: v2Throttling, ...time } = stat;
  const files = readGroup(cpu);
  const throttling =
    cpu?.version === 1
      ? files.parse('cpu.stat', (_, text) => parseCpuThrottling(text))
      : v2Throttling;
  const period = files.parse('cpu.cfs_period_us', (_, text) => text);
  const quota =
    period === undefined
      ? files.parse('cpu.max', (_, text) => parseCpuMax(text))
      : files.parse('cpu.cfs_quota_us', (_, text) => parseCfsQuota(text, period));
  const limitMillis = quota === undefined ? undefined : quotaToMillis(quota);
  return { ...time, ...definedFields({ throttling, limitMillis }) };
}

/** Reads the CPU time from `cpuacct` of v1; undefined without its group. */
function toAccountedCpu(files: GroupReading): CpuStat | undefined {
  const usage = files.parse('cpuacct.usage', (_, text) => parseCpuacctUsage(text));
  if (usage === undefined) return undefined;
  const userNsec = files.parse('cpuacct.usage_user', parseCounter);
  const systemNsec = files.parse('cpuacct.usage_sys', parseCounter);
  return { ...usage, ...definedFields({ userNsec, systemNsec }) };
}

function toMemory(group: GroupTexts | undefined): MemoryUse | undefined {
  const files = readGroup(group);
  const isV1 = group?.version === 1;
  const usageBytes = files.parse(isV1 ? 'memory.usage_in_bytes' : 'memory.current', parseAmount);
  if (usageBytes === undefined) return undefined;
  const limitBytes = files.parse(isV1 ? 'memory.limit_in_bytes' : 'memory.max', parseLimit);
  const stat = files.parse('memory.stat', (_, text) => parseMemoryStat(text));
  const swap = isV1
    ? computeV1Swap(files, usageBytes, limitBytes, stat?.swapBytes)
    : {
        swapBytes: files.parse('memory.swap.current', parseAmount),
        swapLimitBytes: files.parse('memory.swap.max', parseLimit),
      };
  return {
    usageBytes,
    ...definedFields({
      workingSetBytes: stat === undefined ? undefined : workingSetBytes(usageBytes, stat),
      limitBytes,
      peakBytes: files.parse(isV1 ? 'memory.max_usage_in_bytes' : 'memory.peak', parseAmount),
      fileBytes: stat?.fileBytes,
      anonBytes: stat?.anonBytes,
      ...swap,
    }),
  };
}

/**
 * Computes swap and its limit for v1, whose `memsw` files count memory and swap together.
 * @param swapBytes - Swap from `memory.stat`, which is preferred.
 */
function computeV1Swap(
  files: GroupReading,
  usageBytes: number,
  limitBytes: number | undefined,
  swapBytes: number | undefined,
) {
  const memoryAndSwap = files.parse('memory.memsw.usage_in_bytes', parseAmount);
  const memoryAndSwapLimit = files.parse('memory.memsw.limit_in_bytes', parseLimit);
  return {
    swapBytes:
      swapBytes ??
      (memoryAndSwap === undefined ? undefined : Math.max(0, memoryAndSwap - usageBytes)),
    swapLimitBytes:
      limitBytes === undefined || memoryAndSwapLimit === undefined
        ? undefined
        : Math.max(0, memoryAndSwapLimit - limitBytes),
  };
}

function toIo(group: GroupTexts | undefined): IoUse | undefined {
  const files = readGroup(group);
  if (group?.version === 2) return files.parse('io.stat', (_, text) => parseIoStat(text));
  const firstPresent = (name: string) =>
    files.parse(`${name}_recursive`, parseThrottleIo) ?? files.parse(name, parseThrottleIo);
  const [bytes, operations] = [
    firstPresent('blkio.throttle.io_service_bytes'),
    firstPresent('blkio.throttle.io_serviced'),
  ];
  if (bytes === undefined || operations === undefined) return undefined;
  return {
    readBytes: bytes.read,
    writeBytes: bytes.write,
    readOperations: operations.read,
    writeOperations: operations.write,
  };
}

function toPids(group: GroupTexts | undefined): PidsUse | undefined {
  const files = readGroup(group);
  const current = files.parse('pids.current', parseAmount);
  return current === undefined
    ? undefined
    : { current, ...definedFields({ limit: files.parse('pids.max', parseLimit) }) };
}

function toPressure(group: GroupTexts | undefined): PressureUse | undefined {
  const files = readGroup(group);
  const pressure: PressureUse = definedFields({
    cpu: files.parse('cpu.pressure', parsePressure),
    memory: files.parse('memory.pressure', parsePressure),
    io: files.parse('io.pressure', parsePressure),
  });
  return Object.keys(pressure).length === 0 ? undefined : pressure;
}

/** Parses the files of one group. */
interface GroupReading {
  /** Returns the parsed content of a file; undefined when the group has no such file. */
  parse<Value>(name: string, parser: (file: string, text: string) => Value): Value | undefined;
}

const readGroup = (group: GroupTexts | undefined): GroupReading => ({
  parse(name, parser) {
    const text = group?.texts[name];
    return text === undefined ? undefined : parser(name, text);
  },
});
