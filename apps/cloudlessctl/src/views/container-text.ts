import { durationMs } from '@bufbuild/protobuf/wkt';
import {
  ImagePullStatus_Phase as PullPhase,
  ImagePull_Policy as Policy,
  Volume_EmptyDir_Medium as Medium,
  formatEgressDestination,
  resolveUlimit,
  type ImagePullStatus,
} from '@cloudless/api';
import type {
  Device,
  Network,
  Port,
  ReplicaStatus,
  SecurityContext,
  Ulimit,
  Volume,
  WorkloadSpec,
} from '@cloudless/api';
import { formatAge, formatBytes, formatSpan } from '../output/human.js';

/**
 * Formats an image with platform and pull policy: `nginx:alpine, for linux/arm64, pulled always`.
 * The default policy is left out.
 */
export function formatImage({ image, imagePull }: WorkloadSpec): string {
  const policy = imagePull?.policy ?? Policy.IF_NOT_PRESENT;
  const platform = imagePull?.platform ?? '';
  const pulled =
    policy === Policy.ALWAYS ? ', pulled always' : policy === Policy.NEVER ? ', never pulled' : '';
  return `${image}${platform === '' ? '' : `, for ${platform}`}${pulled}`;
}

/** Formats ports: `http=80 (node 8080)`. */
export function formatPorts(ports: readonly Port[]): string {
  return ports
    .map(
      ({ name, containerPort, hostPort }) =>
        `${name}=${containerPort}${hostPort === 0 ? '' : ` (node ${hostPort})`}`,
    )
    .join(', ');
}

/** Formats volumes: `data:/var/lib/data, /tmp (empty), /srv:/www:ro`. */
export function formatVolumes(volumes: readonly Volume[]): string {
  return volumes.map(formatVolume).join(', ');
}

function formatVolume({ mountPath, readOnly, source }: Volume): string {
  const mount = `${mountPath}${readOnly ? ':ro' : ''}`;
  if (source.case === 'named') return `${source.value.name}:${mount}`;
  if (source.case === 'hostPath') return `${source.value.path}:${mount}`;
  if (source.case !== 'emptyDir' || source.value.medium !== Medium.MEMORY)
    return `${mount} (empty)`;
  const { sizeLimitBytes } = source.value;
  return `${mount} (in memory${sizeLimitBytes === 0n ? '' : `, ${formatBytes(sizeLimitBytes)}`})`;
}

/** Formats a security context: `user 1000:1000, non-root, read-only, adds NET_ADMIN, drops ALL`. */
export function formatSecurity(security: SecurityContext | undefined): string {
  if (security === undefined) return '';
  const { runAsUser, runAsGroup, supplementalGroups, fsGroup, capabilitiesAdd, capabilitiesDrop } =
    security;
  const user = runAsUser === undefined ? security.user : String(runAsUser);
  const parts = [
    user === '' ? '' : `user ${user}${runAsGroup === undefined ? '' : `:${runAsGroup}`}`,
    supplementalGroups.length === 0 ? '' : `groups ${supplementalGroups.join(' ')}`,
    fsGroup === undefined ? '' : `fs group ${fsGroup}`,
    security.runAsNonRoot ? 'non-root' : '',
    security.readOnlyRootFilesystem ? 'read-only' : '',
    security.privileged ? 'privileged' : '',
    capabilitiesAdd.length === 0 ? '' : `adds ${capabilitiesAdd.join(' ')}`,
    capabilitiesDrop.length === 0 ? '' : `drops ${capabilitiesDrop.join(' ')}`,
    security.seccompProfile === '' ? '' : `seccomp ${security.seccompProfile}`,
    security.apparmorProfile === '' ? '' : `AppArmor ${security.apparmorProfile}`,
    security.selinuxOptions === '' ? '' : `SELinux ${security.selinuxOptions}`,
    security.noNewPrivileges === undefined
      ? ''
      : security.noNewPrivileges
        ? 'no new privileges'
        : 'new privileges allowed',
    security.runtimeClass === '' ? '' : `runtime class ${security.runtimeClass}`,
  ];
  return parts.filter((part) => part !== '').join(', ');
}

/** Formats network settings: `host network, DNS 10.0.0.1, db at 10.0.0.5`. */
export function formatNetwork(network: Network | undefined): string {
  if (network === undefined) return '';
  const parts = [
    network.hostNetwork ? 'host network' : '',
    network.hostname === '' ? '' : `host name ${network.hostname}`,
    network.dnsServers.length === 0 ? '' : `DNS ${network.dnsServers.join(' ')}`,
    ...network.extraHosts.map(({ ip, hostnames }) => `${hostnames.join(' ')} at ${ip}`),
  ];
  return parts.filter((part) => part !== '').join(', ');
}

/** Formats the limit of destinations: `10.0.0.0/8 port 5432/tcp, service shop/db`. */
export function formatEgress(network: Network | undefined): string {
  if (network?.egress === undefined) return '';
  const { allowed } = network.egress;
  return allowed.length === 0 ? 'no destination' : allowed.map(formatEgressDestination).join(', ');
}

/** Formats kernel settings: `no init process, /dev/shm 1Gi, nofile=5:6, net.core.somaxconn=5`. */
export function formatKernelSettings({
  init,
  shmSizeBytes,
  ulimits,
  sysctls,
}: WorkloadSpec): string {
  const parts = [
    init === undefined ? '' : init ? 'an init process' : 'no init process',
    shmSizeBytes === 0n ? '' : `/dev/shm ${formatBytes(shmSizeBytes)}`,
    ulimits.map(formatUlimit).join(' '),
    ...Object.entries(sysctls)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value]) => `${name}=${value}`),
  ];
  return parts.filter((part) => part !== '').join(', ');
}

/** Formats a limit: `nofile=5:6`, or `core=0` when the soft and the hard limit are equal. */
function formatUlimit(ulimit: Ulimit): string {
  const [soft, hard] = Object.values(resolveUlimit(ulimit)).map((value) =>
    value === -1n ? 'unlimited' : String(value),
  );
  return `${ulimit.name}=${soft === hard ? soft : `${soft}:${hard}`}`;
}

/** Formats devices as the flag `--device` accepts them. */
export function formatDevices(devices: readonly Device[]): string {
  return devices
    .map(({ hostPath, containerPath, permissions }) => {
      const target = containerPath === '' && permissions !== '' ? hostPath : containerPath;
      return [hostPath, target, permissions].filter((part) => part !== '').join(':');
    })
    .join(', ');
}

/** Returns a line for each replica with an image pull status. */
export function formatImagePulls(
  replicas: readonly ReplicaStatus[],
  nowMs: number,
): readonly string[] {
  return replicas.flatMap(({ id, imagePull }) =>
    imagePull === undefined ? [] : [`${id}: ${formatImagePull(imagePull, nowMs)}`],
  );
}

function formatImagePull(
  { image, phase, startedAt, took: duration, sizeBytes, reason }: ImagePullStatus,
  nowMs: number,
): string {
  const ms = duration === undefined ? 0 : durationMs(duration);
  const span =
    duration === undefined ? '' : ` in ${ms < 1_000 ? `${Math.round(ms)}ms` : formatSpan(ms)}`;
  switch (phase) {
    case PullPhase.PULLED:
      return `pulled ${image}${span}${sizeBytes === 0n ? '' : `, ${formatBytes(sizeBytes)}`}`;
    case PullPhase.FAILED:
      return `could not pull ${image}${reason === '' ? '' : `: ${reason}`}`;
    default:
      return `pulling ${image}${startedAt === undefined ? '' : `, for ${formatAge(startedAt, nowMs)}`}`;
  }
}
