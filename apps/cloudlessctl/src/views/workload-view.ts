import {
  ReplicaStatus_Phase,
  RestartPolicy_Policy,
  RolloutStatus_Phase,
  Rollout_Strategy,
  WorkloadSpec_Mode,
  WorkloadStatus_Phase,
  withDefaults,
} from '@cloudless/api';
import type { Event, ReplicaStatus, ResourceList, Workload, WorkloadSpec } from '@cloudless/api';
import { formatAge, formatBytes, formatCpu, formatDuration, formatLabels, formatTime, formatWord } from '../output/human.js';
import { toneOf } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell } from '../output/table.js';
import { eventTable } from './event-view.js';
import { probeText } from './probe-text.js';
import { formatFields, formatSections } from './sections.js';

/** Workloads as a table; wide adds what runs, labels and uid. */
export function workloadTable(workloads: readonly Workload[], nowMs: number, style: Style, wide: boolean): string {
  return formatTable(
    workloadHeaders(wide),
    workloads.map((workload) => workloadCells(workload, nowMs, style, wide)),
  );
}

/** The columns of a table of workloads. */
export function workloadHeaders(wide: boolean): readonly string[] {
  return [
    'NAMESPACE',
    'NAME',
    'STATUS',
    'READY',
    'UPDATED',
    'AGE',
    ...(wide ? ['VERSION', 'RUNS', 'LABELS', 'UID'] : []),
    'REASON',
  ];
}

/** The row of a workload. */
export function workloadCells(workload: Workload, nowMs: number, style: Style, wide: boolean): readonly (Cell | string)[] {
  const { namespace, name, spec, status, uid, createdAt } = workload;
  const extra = [String(status?.version ?? 0), shorten(summaryOf(spec), false), formatLabels(spec?.labels ?? {}), uid];
  return [
    namespace,
    name,
    phaseCell(status?.phase ?? WorkloadStatus_Phase.PENDING, style),
    `${status?.readyReplicas ?? 0}/${status?.desiredReplicas ?? 0}`,
    String(status?.updatedReplicas ?? 0),
    formatAge(createdAt, nowMs),
    ...(wide ? extra : []),
    shorten(status?.reason ?? '', wide),
  ];
}

/** Everything about one workload, in sections. */
export function describeWorkload(workload: Workload, events: readonly Event[], nowMs: number, style: Style): string {
  const { spec, status } = workload;
  return formatSections(style, [
    ['', formatFields(identityFields(workload, nowMs))],
    ['Spec', formatFields(specFields(spec))],
    ['Status', formatFields(statusFields(workload))],
    ['Replicas', replicaTable(status?.replicas ?? [], nowMs, style) || '(none)\n'],
    [
      'Versions',
      formatTable(
        ['VERSION', 'ACTIVE', 'AGE', 'RUNS'],
        (status?.versions ?? []).map(({ version, active, createdAt, summary }) => [
          `${version}`,
          active ? 'yes' : '',
          formatAge(createdAt, nowMs),
          summary,
        ]),
      ) || '(none)\n',
    ],
    ['Events', eventTable(events, nowMs, style) || '(none)\n'],
  ]);
}

/** Replicas as a table. */
export function replicaTable(replicas: readonly ReplicaStatus[], nowMs: number, style: Style): string {
  return formatTable(
    ['REPLICA', 'SLOT', 'VERSION', 'STATUS', 'READY', 'NODE', 'ZONE', 'RESTARTS', 'AGE', 'ENDPOINTS', 'REASON'],
    replicas.map((replica) => [
      replica.id,
      String(replica.slot),
      String(replica.version),
      replicaPhaseCell(replica, style),
      replica.ready ? 'yes' : 'no',
      replica.nodeId,
      replica.zone,
      String(replica.restarts),
      formatAge(replica.createdAt, nowMs),
      replica.endpoints.map(({ portName, ip, port }) => `${portName}=${ip}:${port}`).join(','),
      reasonOf(replica),
    ]),
  );
}

/** Why it is as it is, and how its last container ended: that tells why another one runs. */
function reasonOf({ reason, lastExitCode, lastEndReason }: ReplicaStatus): string {
  if (lastExitCode === undefined && lastEndReason === '') return reason;
  const isCode = lastEndReason === '' || lastEndReason === `exit code ${lastExitCode}`;
  return `${reason} (${isCode ? `last exit code ${lastExitCode}` : `last ended: ${lastEndReason}`})`.trimStart();
}

/** What a spec runs: its image, or its command. */
export function summaryOf(spec: WorkloadSpec | undefined): string {
  const command = [...(spec?.command ?? []), ...(spec?.args ?? [])].join(' ');
  return [spec?.image ?? '', command].filter((part) => part !== '').join(' ');
}

type Field = readonly [string, string];

function identityFields(
  { namespace, name, uid, generation, createdAt, deletionRequestedAt, spec }: Workload,
  nowMs: number,
): Field[] {
  return [
    ['Name', name],
    ['Namespace', namespace],
    ['Uid', uid],
    ['Generation', String(generation)],
    ['Created', createdAt === undefined ? '' : `${formatTime(createdAt)} (${formatAge(createdAt, nowMs)} ago)`],
    ['Deletion', deletionRequestedAt === undefined ? '' : `asked for ${formatAge(deletionRequestedAt, nowMs)} ago`],
    ['Labels', formatLabels(spec?.labels ?? {})],
    ['Annotations', formatLabels(spec?.annotations ?? {})],
  ];
}

function specFields(spec: WorkloadSpec | undefined): Field[] {
  if (spec === undefined) return [];
  const { rollout, restart, placement, resources } = spec;
  const probes = withDefaults(spec); // what is in effect: most of a probe is seldom given
  return [
    ['Image', spec.image],
    ['Command', quotedWords([...spec.command, ...spec.args])],
    ['Working directory', spec.workingDir],
    ['Runtime', spec.runtime],
    ['Mode', spec.mode === WorkloadSpec_Mode.GLOBAL ? 'one on each fitting node' : ''],
    ['Replicas', spec.replicas === undefined ? '' : String(spec.replicas)],
    [
      'Ports',
      spec.ports
        .map(({ name, containerPort, hostPort }) => `${name}=${containerPort}${hostPort === 0 ? '' : ` (node ${hostPort})`}`)
        .join(', '),
    ],
    ['Environment', formatLabels(spec.env)],
    ['Requests', formatResources(resources?.requests)],
    ['Limits', formatResources(resources?.limits)],
    ['Regions', placement?.regions.join(', ') ?? ''],
    ['Zones', placement?.zones.join(', ') ?? ''],
    ['Node selector', formatLabels(placement?.nodeSelector ?? {})],
    ['Priority', spec.priority === undefined ? '' : String(spec.priority)],
    [
      'Restart',
      restart === undefined
        ? ''
        : [
            RestartPolicy_Policy[restart.policy],
            ...(restart.maxRetries === undefined ? [] : [`at most ${restart.maxRetries} times`]),
          ].join(', '),
    ],
    ['Liveness', probeText(probes.livenessProbe)],
    ['Readiness', probeText(probes.readinessProbe)],
    ['Startup', probeText(probes.startupProbe)],
    ['Rollout', rollout === undefined ? '' : rolloutText(rollout)],
    ['Grace period', spec.terminationGracePeriod === undefined ? '' : formatDuration(spec.terminationGracePeriod)],
  ];
}

function rolloutText(rollout: NonNullable<WorkloadSpec['rollout']>): string {
  const parts = [
    Rollout_Strategy[rollout.strategy],
    rollout.maxSurge === undefined ? '' : `max surge ${rollout.maxSurge}`,
    rollout.maxUnavailable === undefined ? '' : `max unavailable ${rollout.maxUnavailable}`,
    rollout.minAvailable === undefined ? '' : `min available ${rollout.minAvailable}`,
  ];
  return parts.filter((part) => part !== '' && part !== undefined).join(', ');
}

function statusFields({ status, generation }: Workload): Field[] {
  if (status === undefined) return [];
  const { rollout } = status;
  const behind = status.observedGeneration < generation ? `${status.observedGeneration} (of ${generation})` : '';
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
    ['Min available', String(status.minAvailable)],
    [
      'Rollout',
      rollout === undefined
        ? ''
        : formatWord(RolloutStatus_Phase[rollout.phase]) + (rollout.reason === '' ? '' : `: ${rollout.reason}`),
    ],
  ];
}

function formatResources(resources: ResourceList | undefined): string {
  if (resources === undefined) return '';
  const { cpuMillis, memoryBytes, storageBytes, bandwidthBps, gpus } = resources;
  const parts = [
    cpuMillis === undefined ? '' : `cpu ${formatCpu(cpuMillis)}`,
    memoryBytes === undefined ? '' : `memory ${formatBytes(memoryBytes)}`,
    storageBytes === 0n ? '' : `storage ${formatBytes(storageBytes)}`,
    bandwidthBps === 0n ? '' : `bandwidth ${bandwidthBps} bit/s`,
    gpus === 0 ? '' : `gpus ${gpus}`,
  ];
  return parts.filter((part) => part !== '').join(', ');
}

/** Words as a shell would need them. */
function quotedWords(words: readonly string[]): string {
  return words.map((item) => (/^[\w@%+=:,./-]+$/.test(item) ? item : `'${item.replaceAll("'", "'\\''")}'`)).join(' ');
}

function phaseCell(phase: WorkloadStatus_Phase, style: Style): Cell {
  const good = phase === WorkloadStatus_Phase.RUNNING || phase === WorkloadStatus_Phase.SUCCEEDED;
  const tone = phase === WorkloadStatus_Phase.FAILED ? 'bad' : good ? 'good' : 'busy';
  return { text: formatWord(WorkloadStatus_Phase[phase] ?? ''), paint: toneOf(style, tone) };
}

function replicaPhaseCell({ phase, ready, leaving, stale }: ReplicaStatus, style: Style): Cell {
  const marks = `${leaving ? ',Leaving' : ''}${stale ? ',Stale' : ''}`;
  const tone = phase === ReplicaStatus_Phase.FAILED ? 'bad' : ready && !stale ? 'good' : 'busy';
  return { text: formatWord(ReplicaStatus_Phase[phase] ?? '') + marks, paint: toneOf(style, tone) };
}

/** A table stays readable with reasons this long; `describe` and wide tables show all of it. */
const MAX_REASON = 60;

function shorten(reason: string, wide: boolean): string {
  return wide || reason.length <= MAX_REASON ? reason : `${reason.slice(0, MAX_REASON - 1)}…`;
}
