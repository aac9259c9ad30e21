import { ReplicaStatus_Phase, WorkloadStatus_Phase } from '@cloudless/api';
import type { Event, ReplicaStatus, Workload } from '@cloudless/api';
import { formatAge, formatLabels, formatTime, formatWord } from '../output/human.js';
import { getTone } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell } from '../output/table.js';
import { formatImagePulls } from './container-text.js';
import { formatRuntimeIds } from './container-view.js';
import { formatEventTable } from './event-view.js';
import {
  formatFailingReplicas,
  formatFailure,
  getRolloutFields,
  formatRolloutPhase,
  getUnsettledReason,
  formatVersionTable,
} from './rollout-view.js';
import { formatFields, formatSections } from './sections.js';
import { getSpecFields, summariseSpec } from './spec-view.js';

/**
 * Formats workloads as a table; wide tables add version, rollout, image and command, labels and
 * uid.
 */
export function formatWorkloadTable(
  workloads: readonly Workload[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    getWorkloadHeaders(wide),
    workloads.map((workload) => toWorkloadCells(workload, nowMs, style, wide)),
  );
}

/** Returns the headers of a workload table. */
export function getWorkloadHeaders(wide: boolean): readonly string[] {
  return [
    'NAMESPACE',
    'NAME',
    'STATUS',
    'READY',
    'UPDATED',
    'AGE',
    ...(wide ? ['VERSION', 'ROLLOUT', 'RUNS', 'LABELS', 'UID'] : []),
    'REASON',
  ];
}

/** Returns the table row of a workload. */
export function toWorkloadCells(
  workload: Workload,
  nowMs: number,
  style: Style,
  wide: boolean,
): readonly (Cell | string)[] {
  const { namespace, name, spec, status, uid, createdAt } = workload;
  const version = String(status?.version ?? 0);
  const extra = [
    version,
    formatRolloutPhase(status?.rollout),
    shorten(summariseSpec(spec), false),
    formatLabels(spec?.labels ?? {}),
    uid,
  ];
  return [
    namespace,
    name,
    toPhaseCell(status?.phase ?? WorkloadStatus_Phase.PENDING, style),
    `${status?.readyReplicas ?? 0}/${status?.desiredReplicas ?? 0}`,
    String(status?.updatedReplicas ?? 0),
    formatAge(createdAt, nowMs),
    ...(wide ? extra : []),
    shorten(status?.reason || getUnsettledReason(status?.rollout), wide),
  ];
}

/** Formats the description of a workload in sections. */
export function formatWorkloadDescription(
  workload: Workload,
  events: readonly Event[],
  nowMs: number,
  style: Style,
): string {
  const { spec, status } = workload;
  return formatSections(style, [
    ['', formatFields(getIdentityFields(workload, nowMs))],
    ['Spec', formatFields(getSpecFields(spec))],
    ['Status', formatFields(getStatusFields(workload))],
    ['Rollout', formatRolloutSection(workload, nowMs)],
    ['Replicas', formatReplicaSection(status?.replicas ?? [], nowMs, style)],
    ['Versions', formatVersionTable(status?.versions ?? [], nowMs, style) || '(none)\n'],
    ['Events', formatEventTable(events, nowMs, style) || '(none)\n'],
  ]);
}

function formatRolloutSection(workload: Workload, nowMs: number): string {
  const failure = workload.status?.rollout?.failure;
  const lines = failure === undefined ? [] : formatFailure(failure);
  return (
    formatFields(getRolloutFields(workload, nowMs)) + lines.map((line) => `${line}\n`).join('')
  );
}

function formatReplicaSection(
  replicas: readonly ReplicaStatus[],
  nowMs: number,
  style: Style,
): string {
  const table = formatReplicaTable(replicas, nowMs, style) || '(none)\n';
  const lines = [
    ...formatContainers(replicas),
    ...formatImagePulls(replicas, nowMs),
    ...formatFailingReplicas(replicas),
  ];
  return table + lines.map((line) => `${line}\n`).join('');
}

/** Returns process id, runtime id and image digest of each running container. */
function formatContainers(replicas: readonly ReplicaStatus[]): readonly string[] {
  return replicas.flatMap(({ id, container }) =>
    container === undefined || container.runtimeId === ''
      ? []
      : [`${id}: ${formatRuntimeIds(container)}`],
  );
}

/** Formats replicas as a table. */
export function formatReplicaTable(
  replicas: readonly ReplicaStatus[],
  nowMs: number,
  style: Style,
): string {
  return formatTable(
    [
      'REPLICA',
      'SLOT',
      'VERSION',
      'STATUS',
      'READY',
      'NODE',
      'ZONE',
      'RESTARTS',
      'AGE',
      'ENDPOINTS',
      'REASON',
    ],
    replicas.map((replica) => [
      replica.id,
      String(replica.slot),
      String(replica.version),
      toReplicaPhaseCell(replica, style),
      replica.ready ? 'yes' : 'no',
      replica.nodeId,
      replica.zone,
      String(replica.restarts),
      formatAge(replica.createdAt, nowMs),
      replica.endpoints.map(({ portName, ip, port }) => `${portName}=${ip}:${port}`).join(','),
      formatReason(replica),
    ]),
  );
}

/** Returns the reason of a replica, with the end of its previous container after a restart. */
function formatReason({ reason, lastExitCode, lastEndReason }: ReplicaStatus): string {
  if (lastExitCode === undefined && lastEndReason === '') return reason;
  const isCode = lastEndReason === '' || lastEndReason === `exit code ${lastExitCode}`;
  return `${reason} (${isCode ? `last exit code ${lastExitCode}` : `last ended: ${lastEndReason}`})`.trimStart();
}

type Field = readonly [string, string];

function getIdentityFields(
  { namespace, name, uid, generation, createdAt, deletionRequestedAt, spec }: Workload,
  nowMs: number,
): Field[] {
  return [
    ['Name', name],
    ['Namespace', namespace],
    ['Uid', uid],
    ['Generation', String(generation)],
    [
      'Created',
      createdAt === undefined
        ? ''
        : `${formatTime(createdAt)} (${formatAge(createdAt, nowMs)} ago)`,
    ],
    [
      'Deletion',
      deletionRequestedAt === undefined
        ? ''
        : `requested ${formatAge(deletionRequestedAt, nowMs)} ago`,
    ],
    ['Labels', formatLabels(spec?.labels ?? {})],
    ['Annotations', formatLabels(spec?.annotations ?? {})],
  ];
}

function getStatusFields({ status, generation }: Workload): Field[] {
  if (status === undefined) return [];
  const behind =
    status.observedGeneration < generation ? `${status.observedGeneration} (of ${generation})` : '';
  return [
    ['Phase', formatWord(WorkloadStatus_Phase[status.phase])],
    ['Reason', status.reason],
    ['Observed', behind],
    [
      'Ready',
      `${status.readyReplicas} of ${status.desiredReplicas} (${status.totalReplicas} live, ${status.updatedReplicas} updated)`,
    ],
    ['Succeeded', status.succeededReplicas === 0 ? '' : String(status.succeededReplicas)],
    ['Version', String(status.version)],
    [
      'Active version',
      status.activeVersion === 0 || status.activeVersion === status.version
        ? ''
        : String(status.activeVersion),
    ],
    ['Min available', String(status.minAvailable)],
  ];
}

function toPhaseCell(phase: WorkloadStatus_Phase, style: Style): Cell {
  const good = phase === WorkloadStatus_Phase.RUNNING || phase === WorkloadStatus_Phase.SUCCEEDED;
  const tone = phase === WorkloadStatus_Phase.FAILED ? 'bad' : good ? 'good' : 'busy';
  return { text: formatWord(WorkloadStatus_Phase[phase] ?? ''), paint: getTone(style, tone) };
}

function toReplicaPhaseCell({ phase, ready, leaving, stale }: ReplicaStatus, style: Style): Cell {
  const marks = `${leaving ? ',Leaving' : ''}${stale ? ',Stale' : ''}`;
  const tone = phase === ReplicaStatus_Phase.FAILED ? 'bad' : ready && !stale ? 'good' : 'busy';
  return {
    text: formatWord(ReplicaStatus_Phase[phase] ?? '') + marks,
    paint: getTone(style, tone),
  };
}

/** Maximum length of a reason in a table; `describe` and wide tables show the whole reason. */
const MAX_REASON = 60;

function shorten(reason: string, wide: boolean): string {
  return wide || reason.length <= MAX_REASON ? reason : `${reason.slice(0, MAX_REASON - 1)}…`;
}
