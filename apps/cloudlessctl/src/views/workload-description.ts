import { WorkloadStatus_Phase } from '@cloudless/api';
import type { Event, ReplicaStatus, Workload } from '@cloudless/api';
import { formatAge, formatLabels, formatWord } from '../output/human.js';
import { formatStyledTime, indentStyle } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatImagePulls } from './container-text.js';
import { formatRuntimeIds } from './container-view.js';
import { formatEventTable } from './event-view.js';
import {
  formatFailingReplicas,
  formatFailure,
  getRolloutFields,
  formatVersionTable,
} from './rollout-view.js';
import { SECTION_INDENT, formatFields, formatSections } from './sections.js';
import { getSpecFields } from './spec-view.js';
import { formatOmittedReplicas, formatReplicaTable } from './replica-view.js';

/** Formats the description of a workload in sections. */
export function formatWorkloadDescription(
  workload: Workload,
  events: readonly Event[],
  nowMs: number,
  style: Style,
): string {
  const { spec, status } = workload;
  const indented = indentStyle(style, SECTION_INDENT);
  return formatSections(style, [
    ['', formatFields(getIdentityFields(workload, nowMs, style))],
    ['Spec', formatFields(getSpecFields(spec))],
    ['Status', formatFields(getStatusFields(workload))],
    ['Rollout', formatRolloutSection(workload, nowMs)],
    ['Replicas', formatReplicaSection(workload, nowMs, indented)],
    ['Versions', formatVersionTable(status?.versions ?? [], nowMs, indented) || '(none)\n'],
    ['Events', formatEventTable(events, nowMs, indented) || '(none)\n'],
  ]);
}

function formatRolloutSection(workload: Workload, nowMs: number): string {
  const failure = workload.status?.rollout?.failure;
  const lines = failure === undefined ? [] : formatFailure(failure);
  return (
    formatFields(getRolloutFields(workload, nowMs)) + lines.map((line) => `${line}\n`).join('')
  );
}

function formatReplicaSection(workload: Workload, nowMs: number, style: Style): string {
  const { replicas = [], omittedReplicas = 0 } = workload.status ?? {};
  const table =
    (formatReplicaTable(replicas, nowMs, style) || '(none)\n') +
    formatOmittedReplicas(omittedReplicas, workload);
  const lines = [
    ...formatContainers(replicas),
    ...formatImagePulls(replicas, nowMs),
    ...formatFailingReplicas(replicas),
  ];
  return table + lines.map((line) => `${line}\n`).join('');
}

/** Returns a line with process id, runtime id and image digest of each container that has them. */
function formatContainers(replicas: readonly ReplicaStatus[]): readonly string[] {
  return replicas.flatMap(({ id, container }) =>
    container === undefined || container.runtimeId === ''
      ? []
      : [`${id}: ${formatRuntimeIds(container)}`],
  );
}

type Field = readonly [string, string];

function getIdentityFields(
  { namespace, name, uid, generation, createdAt, deletionRequestedAt, spec }: Workload,
  nowMs: number,
  style: Style,
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
        : `${formatStyledTime(createdAt, style)} (${formatAge(createdAt, nowMs)} ago)`,
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
  const observedGeneration =
    status.observedGeneration < generation ? `${status.observedGeneration} (of ${generation})` : '';
  return [
    ['Phase', formatWord(WorkloadStatus_Phase[status.phase])],
    ['Reason', status.reason],
    ['Observed', observedGeneration],
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
