import { durationMs } from '@bufbuild/protobuf/wkt';
import { ImagePullStatus_Phase as PullPhase, ImagePull_Policy as Policy, type ImagePullStatus } from '@cloudless/api';
import type { Network, Port, ReplicaStatus, SecurityContext, Volume, WorkloadSpec } from '@cloudless/api';
import { formatAge, formatBytes, formatSpan } from '../output/human.js';

/** An image with how it is pulled: `nginx:alpine, pulled always`. */
export function imageText({ image, imagePull }: WorkloadSpec): string {
  const policy = imagePull?.policy ?? Policy.IF_NOT_PRESENT;
  return `${image}${policy === Policy.ALWAYS ? ', pulled always' : policy === Policy.NEVER ? ', never pulled' : ''}`;
}

/** Ports as the flag `--port` takes them, but for the names of those without one. */
export function portsText(ports: readonly Port[]): string {
  return ports
    .map(({ name, containerPort, hostPort }) => `${name}=${containerPort}${hostPort === 0 ? '' : ` (node ${hostPort})`}`)
    .join(', ');
}

/** Volumes in short: `data:/var/lib/data, /tmp (empty), /srv:/www:ro`. */
export function volumesText(volumes: readonly Volume[]): string {
  return volumes.map(volumeText).join(', ');
}

function volumeText({ mountPath, readOnly, source }: Volume): string {
  const place = `${mountPath}${readOnly ? ':ro' : ''}`;
  if (source.case === 'named') return `${source.value.name}:${place}`;
  return source.case === 'hostPath' ? `${source.value.path}:${place}` : `${place} (empty)`;
}

/** A security context in short: `user 1000:1000, not root, read-only, adds NET_ADMIN, drops ALL`. */
export function securityText(security: SecurityContext | undefined): string {
  if (security === undefined) return '';
  const { runAsUser, runAsGroup, capabilitiesAdd, capabilitiesDrop } = security;
  const parts = [
    runAsUser === undefined ? '' : `user ${runAsUser}${runAsGroup === undefined ? '' : `:${runAsGroup}`}`,
    security.runAsNonRoot ? 'not root' : '',
    security.readOnlyRootFilesystem ? 'read-only' : '',
    security.privileged ? 'privileged' : '',
    capabilitiesAdd.length === 0 ? '' : `adds ${capabilitiesAdd.join(' ')}`,
    capabilitiesDrop.length === 0 ? '' : `drops ${capabilitiesDrop.join(' ')}`,
    security.seccompProfile === '' ? '' : `seccomp ${security.seccompProfile}`,
    security.apparmorProfile === '' ? '' : `AppArmor ${security.apparmorProfile}`,
    security.selinuxOptions === '' ? '' : `SELinux ${security.selinuxOptions}`,
    security.noNewPrivileges === undefined ? '' : security.noNewPrivileges ? 'no new privileges' : 'new privileges allowed',
    security.runtimeClass === '' ? '' : `runtime class ${security.runtimeClass}`,
  ];
  return parts.filter((part) => part !== '').join(', ');
}

/** The network of a container in short: `of the node, DNS 10.0.0.1`. */
export function networkText(network: Network | undefined): string {
  if (network === undefined) return '';
  const parts = [
    network.hostNetwork ? 'of the node' : '',
    network.hostname === '' ? '' : `host name ${network.hostname}`,
    network.dnsServers.length === 0 ? '' : `DNS ${network.dnsServers.join(' ')}`,
    ...network.extraHosts.map(({ ip, hostnames }) => `${hostnames.join(' ')} at ${ip}`),
  ];
  return parts.filter((part) => part !== '').join(', ');
}

/** How the images of replicas were pulled, a line for each replica whose agent pulled. */
export function imagePullLines(replicas: readonly ReplicaStatus[], nowMs: number): readonly string[] {
  return replicas.flatMap(({ id, imagePull }) => (imagePull === undefined ? [] : [`${id}: ${imagePullText(imagePull, nowMs)}`]));
}

function imagePullText({ image, phase, startedAt, took, sizeBytes, reason }: ImagePullStatus, nowMs: number): string {
  const ms = took === undefined ? 0 : durationMs(took);
  const span = took === undefined ? '' : ` in ${ms < 1_000 ? `${Math.round(ms)}ms` : formatSpan(ms)}`;
  switch (phase) {
    case PullPhase.PULLED:
      return `pulled ${image}${span}${sizeBytes === 0n ? '' : `, ${formatBytes(sizeBytes)}`}`;
    case PullPhase.FAILED:
      return `could not pull ${image}${reason === '' ? '' : `: ${reason}`}`;
    default:
      return `pulling ${image}${startedAt === undefined ? '' : `, for ${formatAge(startedAt, nowMs)}`}`;
  }
}
