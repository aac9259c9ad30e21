import { ContainerStatus_State as State, type ContainerStatus } from '@cloudless/api';
import { formatAge } from '../output/human.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Column } from '../output/table.js';

/** Number of digits of an id or digest in a table, as in `docker ps`. */
const SHORT_ID_LENGTH = 12;
/** Maximum length of a command in a table, so that a row fits on a terminal. */
const MAX_COMMAND_LENGTH = 30;
const COLUMNS: readonly (Column | string)[] = [
  'CONTAINER',
  { header: 'IMAGE', fit: 'shorten', minWidth: 16 },
  { header: 'COMMAND', fit: 'shorten', minWidth: 16, dropOrder: 2 },
  'REPLICA',
  { header: 'NODE', fit: 'shorten' },
  'STATE',
  { header: 'AGE', dropOrder: 3 },
  { header: 'ADDRESSES', dropOrder: 1, fit: 'shorten', minWidth: 20 },
];
const WIDE_COLUMNS: readonly (Column | string)[] = [
  'NAMESPACE',
  'WORKLOAD',
  'PID',
  'RUNTIME',
  'RUNTIME ID',
  'DIGEST',
  { header: 'REASON', fit: 'wrap' },
];

/**
 * Formats containers as a table, similar to `docker ps`.
 * @param wide - True adds namespace, workload, identifiers of the runtime and the reason.
 */
export function formatContainerTable(
  containers: readonly ContainerStatus[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    [...COLUMNS, ...(wide ? WIDE_COLUMNS : [])],
    containers.map((container) => [
      container.containerId.slice(0, SHORT_ID_LENGTH),
      container.image === '' ? '(process)' : container.image,
      formatCommand(container.command),
      container.replicaId,
      container.nodeId,
      formatState(container),
      formatAge(container.startedAt, nowMs),
      formatAddresses(container),
      ...(wide ? toWideCells(container) : []),
    ]),
    style,
    { wide },
  );
}

/**
 * Formats the identifiers of a container for the tools of its runtime: `pid 4711, runtime id cd01…,
 * image nginx@sha256:…`.
 */
export function formatRuntimeIds({
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

function toWideCells(container: ContainerStatus): readonly string[] {
  const { namespace, workload, pid, runtime, runtimeId, imageDigest, reason } = container;
  const digest = imageDigest.slice(imageDigest.indexOf('@') + 1).replace(/^sha256:/, '');
  return [
    namespace,
    workload,
    pid === 0 ? '' : String(pid),
    runtime,
    runtimeId.slice(0, SHORT_ID_LENGTH),
    digest.slice(0, SHORT_ID_LENGTH),
    reason,
  ];
}

function formatState({ state, exitCode }: ContainerStatus): string {
  if (state === State.RUNNING) return 'running';
  return exitCode === undefined ? 'exited' : `exited (${exitCode})`;
}

function formatCommand(command: readonly string[]): string {
  const line = command.join(' ').replaceAll(/\s+/g, ' ');
  if (line === '') return '(of the image)';
  return line.length <= MAX_COMMAND_LENGTH ? line : `${line.slice(0, MAX_COMMAND_LENGTH - 1)}…`;
}

function formatAddresses({ endpoints, ip }: ContainerStatus): string {
  if (endpoints.length === 0) return ip;
  return endpoints
    .map((endpoint) => `${endpoint.portName}=${endpoint.ip}:${endpoint.port}`)
    .join(',');
}
