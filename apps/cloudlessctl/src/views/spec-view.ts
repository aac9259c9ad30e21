import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { quoteForShell } from '@cloudless/base';
import {
  Disconnect_Mode,
  RestartPolicy_Policy,
  Rollout_OnFailure,
  Rollout_Promotion,
  Rollout_Strategy,
  WorkloadSpec_Mode,
  requestsIdentity,
  resolveDisconnectTimes,
  withDefaults,
} from '@cloudless/api';
import type { ResourceList, Rollout_Step, WorkloadSpec } from '@cloudless/api';
import {
  formatBytes,
  formatBandwidth,
  formatCpu,
  formatDuration,
  formatLabels,
  formatWord,
} from '../output/human.js';
import { toOneLine } from '../output/table.js';
import {
  formatDevices,
  formatEgress,
  formatImage,
  formatKernelSettings,
  formatNetwork,
  formatPorts,
  formatSecurity,
  formatVolumes,
} from './container-text.js';
import { formatFileReferences } from './file-text.js';
import { formatProbe } from './probe-text.js';

/** Returns image, command and arguments of a spec on one line. */
export function summariseSpec(spec: WorkloadSpec | undefined): string {
  const command = [...(spec?.command ?? []), ...(spec?.args ?? [])].join(' ');
  return [spec?.image ?? '', command].filter((part) => part !== '').join(' ');
}

/**
 * Returns name and text of each field of a spec for `describe`. The text of an unset field is
 * empty.
 */
export function getSpecFields(
  spec: WorkloadSpec | undefined,
): readonly (readonly [string, string])[] {
  if (spec === undefined) return [];
  const { rollout, restart, placement, resources } = spec;
  const probes = withDefaults(spec); // probes are shown with their defaults
  return [
    ['Image', formatImage(spec)],
    ['Command', [...spec.command, ...spec.args].map(quoteForShell).join(' ')],
    ['Working directory', spec.workingDir],
    ['Runtime', spec.runtime],
    ['Mode', spec.mode === WorkloadSpec_Mode.GLOBAL ? 'one on each matching node' : ''],
    ['Replicas', spec.replicas === undefined ? '' : String(spec.replicas)],
    ['Ports', formatPorts(spec.ports)],
    ['Network', formatNetwork(spec.network)],
    ['Egress', formatEgress(spec.network)],
    ['Volumes', formatVolumes(spec.volumes)],
    ['Security', formatSecurity(spec.security)],
    ['Identity', requestsIdentity(spec) ? 'certificate of the workload' : ''],
    ['Container', formatKernelSettings(spec)],
    ['Devices', formatDevices(spec.devices)],
    ['Environment', formatLabels(spec.env)],
    ['Secrets', formatFileReferences(spec.secrets)],
    ['Configs', formatFileReferences(spec.configs)],
    ['Image pull secret', spec.imagePull?.secret ?? ''],
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
            formatWord(RestartPolicy_Policy[restart.policy] ?? ''),
            ...(restart.maxRetries === undefined ? [] : [`at most ${restart.maxRetries} times`]),
          ].join(', '),
    ],
    ['Liveness', formatProbe(probes.livenessProbe)],
    ['Readiness', formatProbe(probes.readinessProbe)],
    ['Startup', formatProbe(probes.startupProbe)],
    ['Rollout', rollout === undefined ? '' : formatRolloutSettings(rollout)],
    ['Disconnect', formatDisconnectPolicy(spec)],
    [
      'Grace period',
      spec.terminationGracePeriod === undefined ? '' : formatDuration(spec.terminationGracePeriod),
    ],
  ];
}

/** Formats the rollout settings that are set, for example `RollingUpdate, max surge 2`. */
function formatRolloutSettings(rollout: NonNullable<WorkloadSpec['rollout']>): string {
  const {
    maxSurge,
    maxUnavailable,
    minAvailable,
    maxFailedNew,
    maxFailedNewPercent,
    progressDeadline,
    pauseDuration,
    steps,
  } = rollout;
  const parts = [
    formatWord(Rollout_Strategy[rollout.strategy] ?? ''),
    ...Object.entries({
      'max surge': maxSurge,
      'max unavailable': maxUnavailable,
      'min available': minAvailable,
      'max failed new':
        maxFailedNewPercent === undefined ? maxFailedNew : `${maxFailedNewPercent}%`,
    }).map(([name, value]) => (value === undefined ? '' : `${name} ${value}`)),
    progressDeadline === undefined ? '' : `progress deadline ${formatDuration(progressDeadline)}`,
    pauseDuration === undefined ? '' : `pause ${formatDuration(pauseDuration)}`,
    rollout.promotion === Rollout_Promotion.MANUAL ? 'manual promotion' : '',
    rollout.onFailure === Rollout_OnFailure.ROLLBACK ? 'rollback on failure' : '',
    steps.length === 0 ? '' : `steps ${steps.map(formatStep).join('; ')}`,
  ];
  return parts.filter((part) => part !== '' && part !== undefined).join(', ');
}

/**
 * Formats the disconnect policy with the times that hold, for example `Exclusive, stop after 10s,
 * lost after 20s`; empty when the spec has no policy.
 */
function formatDisconnectPolicy({ disconnect }: WorkloadSpec): string {
  if (disconnect === undefined) return '';
  const { stopAfterMs, lostAfterMs } = resolveDisconnectTimes({ disconnect });
  return [
    formatWord(Disconnect_Mode[disconnect.mode] ?? ''),
    ...(stopAfterMs === undefined ? [] : [`stop after ${formatMs(stopAfterMs)}`]),
    `lost after ${formatMs(lostAfterMs)}`,
  ].join(', ');
}

const formatMs = (durationMs: number): string => formatDuration(durationFromMs(durationMs));

/** Formats a canary step in the form that the flag `--step` accepts. */
function formatStep(step: Rollout_Step): string {
  const { replicas, percent, wait, promotion, weightPercent, gate } = step;
  const size = percent > 0 ? `${percent}%` : replicas > 0 ? String(replicas) : '';
  const stepEnd =
    promotion === Rollout_Promotion.MANUAL
      ? ',manual'
      : wait === undefined
        ? ''
        : `,wait=${formatDuration(wait)}`;
  const weight = weightPercent === undefined ? '' : `weight=${weightPercent}%`;
  const amount = [size, weight].filter((part) => part !== '').join(',');
  return amount + stepEnd + (gate === '' ? '' : `,gate=${toOneLine(gate)}`);
}

function formatResources(resources: ResourceList | undefined): string {
  if (resources === undefined) return '';
  const { cpuMillis, memoryBytes, storageBytes, bandwidthBps, gpus, custom, pids } = resources;
  const parts = [
    cpuMillis === undefined ? '' : `cpu ${formatCpu(cpuMillis)}`,
    memoryBytes === undefined ? '' : `memory ${formatBytes(memoryBytes)}`,
    storageBytes === 0n ? '' : `storage ${formatBytes(storageBytes)}`,
    bandwidthBps === 0n ? '' : `bandwidth ${formatBandwidth(bandwidthBps)}`,
    gpus === 0 ? '' : `gpus ${gpus}`,
    ...Object.entries(custom).map(([name, amount]) => `${name} ${amount}`),
    pids === undefined ? '' : `processes ${pids}`,
  ];
  return parts.filter((part) => part !== '').join(', ');
}
