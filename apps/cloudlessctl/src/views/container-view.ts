import { ContainerStatus_State as State, type ContainerStatus } from '@cloudless/api';
import { formatAge } from '../output/human.js';
import { formatTable } from '../output/table.js';

/** Number of digits of an id or digest in a table. */
const SHORT_ID = 12;
/** Maximum length of a command in a table. */
const MAX_COMMAND = 30;
const WIDE = ['NAMESPACE', 'WORKLOAD', 'PID', 'RUNTIME', 'RUNTIME ID', 'DIGEST', 'REASON'];

/** Formats containers as a table, similar to `docker ps`. */
export function containerTable(
  containers: readonly ContainerStatus[],
  nowMs: number,
  wide: boolean,
): string {
  return formatTable(
    [
      'CONTAINER',
      'IMAGE',
      'COMMAND',
      'REPLICA',
      'NODE',
      'STATE',
      'AGE',
      'ADDRESSES',
      ...(wide ? WIDE : []),
    ],
    containers.map((container) => [
      container.containerId.slice(0, SHORT_ID),
      container.image === '' ? '(process)' : container.image,
      shortCommand(container.command),
      container.replicaId,
      container.nodeId,
      stateOf(container),
      formatAge(container.startedAt, nowMs),
      addressesOf(container),
      ...(wide ? wideCells(container) : []),
    ]),
  );
}

/**
 * Formats the identifiers of a container for the tools of its runtime: `pid 4711, runtime id cd01…,
 * image nginx@sha256:…`.
 */
export function runtimeLine({
  runtimeId,
  imageDigest,
  pid,
}: Pick<ContainerStatus, 'runtimeId' | 'imageDigest' | 'pid'>): string {
  const parts = [
    pid === 0 ? '' : `pid ${pid}`,
    runtimeId === '' ? '' : `runtime id ${runtimeId}`,
    imageDigest === '' ? '' : `image ${imageDigest}`,
  ];
  return parts.filter((part) => part !== '').join(', ');
}

function wideCells(container: ContainerStatus): readonly string[] {
  const { namespace, workload, pid, runtime, runtimeId, imageDigest, reason } = container;
  const digest = imageDigest.slice(imageDigest.indexOf('@') + 1).replace(/^sha256:/, '');
  return [
    namespace,
    workload,
    pid === 0 ? '' : String(pid),
    runtime,
    runtimeId.slice(0, SHORT_ID),
    digest.slice(0, SHORT_ID),
    reason,
  ];
}

function stateOf({ state, exitCode }: ContainerStatus): string {
  if (state === State.RUNNING) return 'running';
  return exitCode === undefined ? 'exited' : `exited (${exitCode})`;
}

function shortCommand(command: readonly string[]): string {
  const line = command.join(' ').replaceAll(/\s+/g, ' ');
  if (line === '') return '(of the image)';
  return line.length <= MAX_COMMAND ? line : `${line.slice(0, MAX_COMMAND - 1)}…`;
}

function addressesOf({ endpoints, ip }: ContainerStatus): string {
  if (endpoints.length === 0) return ip;
  return endpoints
    .map((endpoint) => `${endpoint.portName}=${endpoint.ip}:${endpoint.port}`)
    .join(',');
}
