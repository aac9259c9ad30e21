import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { CriClient } from '../client/cri-client.js';
import { commandLineOf, readProcess, readProcesses } from '../system/host-processes.js';

/** Traces that the containers of one owner leave on a machine, as readable phrases. */
export interface Traces {
  /** All traces that were found. */
  readonly found: readonly string[];
  /** Returns the traces that still exist. */
  remaining(): readonly string[];
}

interface Trace {
  readonly what: string;
  readonly isThere: () => boolean;
}

/**
 * Finds the traces of the sandboxes and containers with these labels: processes, mounts, network
 * namespaces, links, cgroups.
 */
export async function readTraces(
  client: CriClient,
  labelSelector: Record<string, string>,
): Promise<Traces> {
  const { items } = await client.quick('ListPodSandbox', (calls) =>
    calls.listPodSandbox({ filter: { labelSelector } }),
  );
  const { containers } = await client.quick('ListContainers', (calls) =>
    calls.listContainers({ filter: { labelSelector } }),
  );
  const infos = [
    ...(await Promise.all(items.map(({ id }) => sandboxInfo(client, id)))),
    ...(await Promise.all(containers.map(({ id }) => containerInfo(client, id)))),
  ];
  const ids = [...items, ...containers].map(({ id }) => id);
  const traces = [
    ...ids.flatMap((id) => [...shims(id), ...mounts(id)]),
    ...infos.flatMap(({ pid, netns }) => [...ofProcess(pid), ...ofNetwork(netns)]),
  ];
  const distinct = [...new Map(traces.map((trace) => [trace.what, trace])).values()];
  return {
    found: distinct.map(({ what }) => what),
    remaining: () => distinct.filter(({ isThere }) => isThere()).map(({ what }) => what),
  };
}

interface Info {
  readonly pid: number;
  readonly netns: string;
}

async function sandboxInfo(client: CriClient, podSandboxId: string): Promise<Info> {
  const { info } = await client.quick('PodSandboxStatus', (calls) =>
    calls.podSandboxStatus({ podSandboxId, verbose: true }),
  );
  return toInfo(info);
}

async function containerInfo(client: CriClient, containerId: string): Promise<Info> {
  const { info } = await client.quick('ContainerStatus', (calls) =>
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

function ofProcess(pid: number): readonly Trace[] {
  const before = readProcess(pid);
  if (before === undefined) return [];
  const process = {
    what: `process ${pid}`,
    isThere: () => readProcess(pid)?.startToken === before.startToken,
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
    .map((directory) => ({ what: `cgroup ${directory}`, isThere: () => existsSync(directory) }));
  return [process, ...cgroups, ...linkOf(pid)];
}

/** The machine's end of a container's network link. */
function linkOf(pid: number): readonly Trace[] {
  try {
    const index = readFileSync(`/proc/${pid}/root/sys/class/net/eth0/iflink`, 'utf8').trim();
    const links = '/sys/class/net';
    const name = readdirSync(links).find(
      (each) => readFileSync(path.join(links, each, 'ifindex'), 'utf8').trim() === index,
    );
    return name === undefined
      ? []
      : [{ what: `link ${name}`, isThere: () => existsSync(path.join(links, name)) }];
  } catch {
    return []; // the process of the sandbox has no /sys
  }
}

function ofNetwork(netns: string): readonly Trace[] {
  return netns === ''
    ? []
    : [
        {
          what: `network namespace ${netns}`,
          isThere: () => existsSync(netns) || isMounted(netns),
        },
      ];
}

function mounts(id: string): readonly Trace[] {
  return mountPoints()
    .filter((point) => point.includes(id))
    .map((point) => ({ what: `mount ${point}`, isThere: () => isMounted(point) }));
}

function shims(id: string): readonly Trace[] {
  return readProcesses()
    .filter(({ pid }) => commandLineOf(pid).includes(id))
    .map(({ pid, startToken }) => ({
      what: `shim ${pid}`,
      isThere: () => readProcess(pid)?.startToken === startToken,
    }));
}

function isMounted(point: string): boolean {
  return mountPoints().includes(point);
}

function mountPoints(): readonly string[] {
  return readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '');
}
