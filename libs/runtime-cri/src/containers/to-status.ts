import { definedFields } from '@cloudless/base';
import { formatExitReason, type ContainerEndpoint, type ContainerStatus } from '@cloudless/runtime';
import {
  ContainerState,
  type ContainerStatus as CriStatus,
  type ContainerStatusResponse,
} from '../gen/runtime/v1/api_pb.js';
import { fromAnnotations, readContainerId } from './labels.js';
import { toMs } from './nanoseconds.js';

/**
 * Address of endpoints in the network of the machine. Cloudless has no network between machines, so
 * these endpoints are reachable on the machine itself only.
 */
const LOOPBACK = '127.0.0.1';
/** Names of signals by their number on Linux. Other signals are reported by number. */
const SIGNALS = new Map([
  [1, 'SIGHUP'],
  [2, 'SIGINT'],
  [3, 'SIGQUIT'],
  [4, 'SIGILL'],
  [5, 'SIGTRAP'],
  [6, 'SIGABRT'],
  [7, 'SIGBUS'],
  [8, 'SIGFPE'],
  [9, 'SIGKILL'],
  [11, 'SIGSEGV'],
  [13, 'SIGPIPE'],
  [14, 'SIGALRM'],
  [15, 'SIGTERM'],
  [31, 'SIGSYS'],
]);

/**
 * Converts the status that the runtime reports.
 * @param ip - IP address of the sandbox; empty in the network of the machine or when unknown.
 * @param bootedAtMs - Boot time of the machine, wall-clock milliseconds.
 */
export function toStatus(
  answer: ContainerStatusResponse,
  ip: string,
  bootedAtMs: number,
): ContainerStatus {
  const status = answer.status;
  const { labels, ports, hostNetwork = false } = fromAnnotations(status?.annotations ?? {});
  // Use the creation time: runtimes record the start time after the start, when the process may
  // already have written lines or ended.
  const startedAtMs = toMs(status?.createdAt ?? 0n);
  const common: Omit<ContainerStatus, 'phase'> = {
    containerId: readContainerId(status?.labels ?? {}),
    labels,
    startedAtMs,
    ownCgroup: true,
    ...(status === undefined || status.id === '' ? {} : { runtimeId: status.id }),
    ...(status === undefined || status.imageRef === '' ? {} : { imageDigest: status.imageRef }),
    ...(hostNetwork ? {} : { ownNetwork: true }),
    endpoints: ports.map(({ name, port }): ContainerEndpoint => ({
      portName: name,
      ip: hostNetwork ? LOOPBACK : ip,
      port,
    })),
  };
  if (status?.state !== ContainerState.CONTAINER_EXITED) {
    const pid = parsePid(answer.info);
    // In the network of the machine, some runtimes report no address, others that of the machine.
    const address = hostNetwork || ip === '' ? {} : { ip };
    return { ...common, phase: 'running', ...definedFields({ pid }), ...address };
  }
  const { reason, exitCode } = status;
  return {
    ...common,
    phase: 'exited',
    finishedAtMs: Math.max(startedAtMs, toMs(status.finishedAt)),
    ...toExit(reason, exitCode, startedAtMs < bootedAtMs),
  };
}

/**
 * Reason that runtimes give for an exit that they did not observe, for example because the machine
 * was restarted.
 */
const LOST_END = 'Unknown';

/**
 * Converts exit code and reason of the runtime.
 * @param startedBeforeBoot - True when the machine was restarted since the start of the container.
 */
function toExit(
  reason: string,
  exitCode: number,
  startedBeforeBoot: boolean,
): { readonly exitCode: number; readonly reason: string } {
  if (reason === LOST_END)
    return {
      exitCode: -1,
      reason: startedBeforeBoot ? 'lost with the machine' : formatExitReason(-1),
    };
  // Runtimes give this reason also when the OOM killer killed only a child, and the main process
  // then exited with 0.
  if (reason === 'OOMKilled' && exitCode !== 0) return { exitCode, reason: 'out of memory' };
  return { exitCode, reason: formatExitReason(exitCode, SIGNALS.get(exitCode - 128)) };
}

/** Reason that containerd gives for a container whose main process could not be started. */
const START_ERROR = 'StartError';

/**
 * Returns true when an exited container never ran. Container runtimes keep a container whose start
 * failed, with exit code 128, until its removal. A container whose exit the runtime did not observe
 * may lack a start time, too, but did run.
 * @see containerd, pkg/cri/server/container_start.go; CRI-O reports a missing start time as the
 *   zero time of Go, which is negative in nanoseconds
 */
export function wasNeverStarted(status: CriStatus | undefined): boolean {
  if (status?.state !== ContainerState.CONTAINER_EXITED) return false;
  return status.reason === START_ERROR || (status.startedAt <= 0n && status.reason !== LOST_END);
}

/**
 * Parses the process id from a verbose status of a container or sandbox, where containerd and CRI-O
 * report it.
 * @returns Undefined when the status has no process id, or the process has ended.
 */
export function parsePid(info: Readonly<Record<string, string>>): number | undefined {
  try {
    const { pid } = JSON.parse(info['info'] ?? '{}') as { readonly pid?: unknown };
    return typeof pid === 'number' && pid > 0 ? pid : undefined;
  } catch {
    return undefined;
  }
}
