import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { CriClient } from '../client/cri-client.js';
import {
  isRunning,
  readCommandLine,
  readProcess,
  readProcesses,
} from '../system/host-processes.js';

/** Traces that containers leave on a machine, each as a phrase such as `process 17`. */
export interface Traces {
  /** The traces that existed when they were read. */
  readonly found: readonly string[];
  /** Returns those of the traces that still exist now. */
  remaining(): readonly string[];
}

interface Trace {
  readonly description: string;
  readonly exists: () => boolean;
}

/**
 * Finds the traces of the sandboxes and containers with these labels: processes, shims, mounts,
 * network namespaces, network links and cgroups.
 */
export async function readTraces(
  client: CriClient,
  labelSelector: Record<string, string>,
): Promise<Traces> {
  const { items } = await client.callQuick('ListPodSandbox', (calls) =>
    calls.listPodSandbox({ filter: { labelSelector } }),
  );
  const { containers } = await client.callQuick('ListContainers', (calls) =>
    calls.listContainers({ filter: { labelSelector } }),
  );
  const infos = [
    ...(await Promise.all(items.map(({ id }) => readSandboxInfo(client, id)))),
    ...(await Promise.all(containers.map(({ id }) => readContainerInfo(client, id)))),
  ];
  const ids = [...items, ...containers].map(({ id }) => id);
  const traces = [
    ...ids.flatMap((id) => [...findShims(id), ...findMounts(id)]),
    ...infos.flatMap(({ pid, netns }) => [...findProcessTraces(pid), ...findNetworkTraces(netns)]),
  ];
  const distinct = [...new Map(traces.map((trace) => [trace.description, trace])).values()];
  return {
    found: distinct.map(({ description }) => description),
    remaining: () =>
      distinct.filter(({ exists }) => exists()).map(({ description }) => description),
  };
}

/** The relevant part of a verbose status. */
interface Info {
  /** Process id; 0 when the process has ended. */
  readonly pid: number;
  /** Path of the network namespace; empty when it has no path of its own. */
  readonly netns: string;
}

async function readSandboxInfo(client: CriClient, podSandboxId: string): Promise<Info> {
  const { info } = await client.callQuick('PodSandboxStatus', (calls) =>
    calls.podSandboxStatus({ podSandboxId, verbose: true }),
  );
  return toInfo(info);
}

async function readContainerInfo(client: CriClient, containerId: string): Promise<Info> {
  const { info } = await client.callQuick('ContainerStatus', (calls) =>
    calls.containerStatus({ containerId, verbose: true }),
  );
  return toInfo(info);
}

function toInfo(info: Readonly<Record<string, string>>): Info {
  const { pid = 0, runtimeSpec } = JSON.parse(info['info'] ?? '{}') as {
    readonly pid?: number;
    readonly runtimeSpec?: {
      readonly linux?: {
        readonly namespaces?: readonly { readonly type: string; readonly path?: string }[];
      };
    };
  };
  const netns = runtimeSpec?.linux?.namespaces?.find(({ type }) => type === 'network')?.path ?? '';
  return { pid, netns: netns.startsWith('/proc/') ? '' : netns };
}

function findProcessTraces(pid: number): readonly Trace[] {
  const before = readProcess(pid);
  if (before === undefined) return [];
  const process = {
    description: `process ${pid}`,
    exists: () => isRunning(before),
  };
  const groups = readFileSync(`/proc/${pid}/cgroup`, 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.split(':'));
  const cgroups = groups
    .map(
      ([, controllers = '', group = '']) =>
        `/sys/fs/cgroup/${controllers.replace(/^name=/, '')}${group}`,
    )
    .filter((directory) => /[0-9a-f]{64}/.test(directory) && existsSync(directory))
    .map((directory) => ({
      description: `cgroup ${directory}`,
      exists: () => existsSync(directory),
    }));
  return [process, ...cgroups, ...findLink(pid)];
}

/** Finds the machine's end of the network link of a container. */
function findLink(pid: number): readonly Trace[] {
  try {
    const index = readFileSync(`/proc/${pid}/root/sys/class/net/eth0/iflink`, 'utf8').trim();
    const links = '/sys/class/net';
    const name = readdirSync(links).find(
      (each) => readFileSync(path.join(links, each, 'ifindex'), 'utf8').trim() === index,
    );
    return name === undefined
      ? []
      : [{ description: `link ${name}`, exists: () => existsSync(path.join(links, name)) }];
  } catch {
    return []; // the process of the sandbox has no /sys
  }
}

function findNetworkTraces(netns: string): readonly Trace[] {
  return netns === ''
    ? []
    : [
        {
          description: `network namespace ${netns}`,
          exists: () => existsSync(netns) || isMounted(netns),
        },
      ];
}

function findMounts(id: string): readonly Trace[] {
  return listMountPoints()
    .filter((point) => point.includes(id))
    .map((point) => ({ description: `mount ${point}`, exists: () => isMounted(point) }));
}

function findShims(id: string): readonly Trace[] {
  return readProcesses()
    .filter(({ pid }) => readCommandLine(pid).includes(id))
    .map(({ pid, startToken }) => ({
      description: `shim ${pid}`,
      exists: () => isRunning({ pid, startToken }),
    }));
}

function isMounted(point: string): boolean {
  return listMountPoints().includes(point);
}

function listMountPoints(): readonly string[] {
  return readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '');
}
