import { iterateFields, iterateLines, parseWhole } from './lines.js';
import { MalformedCgroupFileError } from './malformed.js';

/**
 * Block I/O of a group since its creation, the sum over all devices. I/O on a stacked device
 * (device mapper, loop) is counted twice, as the kernel counts it for the lower device, too.
 */
export interface IoUse {
  readonly readBytes: bigint;
  readonly writeBytes: bigint;
  /** Absent for processes without a group of their own. */
  readonly readOperations?: bigint;
  /** Absent for processes without a group of their own. */
  readonly writeOperations?: bigint;
}

/**
 * Parses cgroup v2 `io.stat`. An empty file means no I/O. Unknown keys are skipped, because
 * controllers add keys.
 *
 * Kernels 5.13 to 5.17 do not end the line of a device without counters, so one line may hold
 * several devices. On every kernel the last device may still be in setup and have no counters. A
 * device that the kernel names `(unknown)` is hidden below another device and is skipped.
 * @throws {@link MalformedCgroupFileError}
 * @see Linux kernel, Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files"
 */
export function parseIoStat(text: string): IoUse {
  const sums = { rbytes: 0n, wbytes: 0n, rios: 0n, wios: 0n };
  for (const { line, text: content } of iterateLines(text)) {
    let device: string | undefined;
    for (const field of iterateFields(content)) {
      const equals = field.indexOf('=');
      if (equals < 0) {
        if (!isDevice(field)) throw createNoDeviceError('io.stat', line, field);
        device = field;
        continue;
      }
      if (device === undefined) throw createNoDeviceError('io.stat', line, field);
      const key = field.slice(0, equals);
      if (isSummedKey(key)) {
        const value = parseWhole('io.stat', line, field.slice(equals + 1));
        if (device !== UNKNOWN) sums[key] += value;
      }
    }
  }
  return {
    readBytes: sums.rbytes,
    writeBytes: sums.wbytes,
    readOperations: sums.rios,
    writeOperations: sums.wios,
  };
}

const isSummedKey = (key: string): key is 'rbytes' | 'wbytes' | 'rios' | 'wios' =>
  key === 'rbytes' || key === 'wbytes' || key === 'rios' || key === 'wios';

/** Sums of one file of cgroup v1, which counts either bytes or operations. */
export interface ReadWrite {
  readonly read: bigint;
  readonly write: bigint;
}

/**
 * Parses cgroup v1 `blkio.throttle.io_service_bytes` and `blkio.throttle.io_serviced`, also their
 * `_recursive` forms.
 * @param file - File name for error messages.
 * @returns Undefined when the file lists no device. This does not mean 0: newer kernels (observed
 *   on 6.18) count a device only after a limit was set for it.
 * @throws {@link MalformedCgroupFileError}
 * @see Linux kernel, Documentation/admin-guide/cgroup-v1/blkio-controller.rst
 */
export function parseThrottleIo(file: string, text: string): ReadWrite | undefined {
  const sums = { read: 0n, write: 0n };
  let devices = 0;
  for (const { line, text: content } of iterateLines(text)) {
    const [device = '', operation = '', value] = content.split(/\s+/, 3);
    if (device === 'Total') {
      parseWhole(file, line, operation);
      continue;
    }
    if (!isDevice(device)) throw createNoDeviceError(file, line, device);
    if (value === undefined)
      throw new MalformedCgroupFileError(file, line, 'a line without a value');
    const amount = parseWhole(file, line, value);
    if (device === UNKNOWN) continue;
    devices += 1;
    if (operation === 'Read') sums.read += amount;
    if (operation === 'Write') sums.write += amount;
  }
  return devices === 0 ? undefined : sums;
}

/** Name that the kernel gives to a device that is hidden below another device. */
const UNKNOWN = '(unknown)';

const isDevice = (field: string): boolean => /^\d{1,10}:\d{1,10}$/.test(field) || field === UNKNOWN;

const createNoDeviceError = (file: string, line: number, field: string): MalformedCgroupFileError =>
  new MalformedCgroupFileError(
    file,
    line,
    `${JSON.stringify(field.slice(0, 40))} is not a device number such as 8:0`,
  );
