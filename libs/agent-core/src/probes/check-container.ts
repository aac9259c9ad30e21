import { errorKindOf, errorMessageOf, type ContainerId } from '@cloudless/base';
import type { ContainerEndpoint, ContainerRuntime } from '@cloudless/runtime';
import type { TcpConnect } from '../container/wait-for-ports.js';
import type { ProbeCheck, ProbeSchedule } from './probe-schedule.js';
import { formatTimeout, type CheckResult } from './probe-state.js';

/** Address that a check connects to. */
export interface ProbeTarget {
  readonly ip: string;
  readonly port: number;
}

/**
 * Protocol clients of probes. Both methods reject with a message for people when the server does
 * not answer, and as soon as `signal` is aborted.
 */
export interface ProbeClients {
  /**
   * Sends one GET request, follows no redirect and does not read the body.
   * @returns The HTTP status code.
   */
  http(
    request: ProbeTarget & {
      readonly path: string;
      readonly headers: Readonly<Record<string, string>>;
    },
    signal: AbortSignal,
  ): Promise<number>;
  /**
   * Sends one `grpc.health.v1.Health/Check`.
   * @returns The name of the status, such as `SERVING`.
   */
  grpc(request: ProbeTarget & { readonly service: string }, signal: AbortSignal): Promise<string>;
}

export interface CheckDeps {
  readonly runtime: Pick<ContainerRuntime, 'exec'>;
  readonly connect: TcpConnect;
  readonly probeClients: ProbeClients;
}

/** Bytes of a command's output that are kept for the failure message. */
const OUTPUT_BYTES = 512;
/** Characters of the first output line in the failure message, which must stay readable. */
const DETAIL_CHARACTERS = 160;

/**
 * Makes one check of a running container. Never rejects: failures are part of the result.
 * @param signal - Ends the check. The caller aborts an HTTP or gRPC check at its timeout; TCP and
 *   exec checks end at `timeoutMs` by themselves.
 */
export async function checkContainer(
  { check, timeoutMs }: Pick<ProbeSchedule, 'check' | 'timeoutMs'>,
  container: { readonly id: ContainerId; readonly endpoints: readonly ContainerEndpoint[] },
  deps: CheckDeps,
  signal: AbortSignal,
): Promise<CheckResult> {
  if (check.kind === 'exec')
    return runCheckCommand(check.command, timeoutMs, container.id, deps, signal);
  const target = container.endpoints.find(({ portName }) => portName === check.portName);
  if (target === undefined) return toFailure(`port ${check.portName} is not declared`);
  try {
    return await checkPort(check, target, timeoutMs, deps, signal);
  } catch (reason) {
    return toFailure(`${errorMessageOf(reason)} at port ${check.portName}`);
  }
}

async function checkPort(
  check: Exclude<ProbeCheck, { kind: 'exec' }>,
  { ip, port }: ProbeTarget,
  timeoutMs: number,
  { connect, probeClients }: CheckDeps,
  signal: AbortSignal,
): Promise<CheckResult> {
  switch (check.kind) {
    case 'http': {
      const { path, headers } = check;
      const status = await probeClients.http({ ip, port, path, headers }, signal);
      return status >= 200 && status < 400
        ? { kind: 'passed' }
        : toFailure(`HTTP ${status} from ${path}`);
    }
    case 'tcp':
      return (await connect(ip, port, timeoutMs))
        ? { kind: 'passed' }
        : toFailure(`no connection to port ${check.portName}`);
    case 'grpc': {
      const { service } = check;
      const status = await probeClients.grpc({ ip, port, service }, signal);
      const serviceSuffix = service === '' ? '' : ` for service ${service}`;
      return status === 'SERVING'
        ? { kind: 'passed' }
        : toFailure(`gRPC health ${status}${serviceSuffix}`);
    }
  }
}

/**
 * Runs the command of an exec check. The result is `unknown`, not `failed`, when the runtime does
 * not answer or the container has just exited.
 */
async function runCheckCommand(
  command: readonly string[],
  timeoutMs: number,
  containerId: ContainerId,
  { runtime }: CheckDeps,
  signal: AbortSignal,
): Promise<CheckResult> {
  let output = new Uint8Array(0);
  let exitCode = -1;
  try {
    for await (const event of runtime.exec(containerId, { command, timeoutMs }, signal)) {
      if (event.kind === 'exited') exitCode = event.exitCode;
      else if (output.length < OUTPUT_BYTES) output = appendBytes(output, event.data);
    }
  } catch (reason) {
    const kind = errorKindOf(reason);
    if (kind === 'invalid') return toFailure(errorMessageOf(reason));
    if (kind === 'deadline') return toFailure(formatTimeout(timeoutMs));
    return { kind: 'unknown', reason: errorMessageOf(reason) };
  }
  if (exitCode === 0) return { kind: 'passed' };
  if (signal.aborted) return { kind: 'unknown', reason: 'the check was aborted' };
  const line =
    new TextDecoder().decode(output).trim().split('\n')[0]?.slice(0, DETAIL_CHARACTERS) ?? '';
  return {
    kind: 'failed',
    reason: `the command ended with exit code ${exitCode}`,
    ...(line === '' ? {} : { detail: line }),
  };
}

function toFailure(reason: string): CheckResult {
  return { kind: 'failed', reason };
}

function appendBytes(before: Uint8Array, data: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(Math.min(OUTPUT_BYTES, before.length + data.length));
  both.set(before);
  both.set(data.subarray(0, both.length - before.length), before.length);
  return both;
}
