import type { ContainerStatus, Workload } from '@cloudless/api';
import { RealCluster } from './cluster.js';

/** What the set-up of real containers in tools/containers tells scripts, and so these tests. */
const tools = new URL('../../containers/', import.meta.url);
const { findContainers } = (await import(new URL('find.mjs', tools).href)) as {
  readonly findContainers: () => {
    readonly required: boolean;
    readonly socket?: string;
    readonly whyNot?: string;
  };
};
const { callCri } = (await import(new URL('cri.mjs', tools).href)) as {
  readonly callCri: <Answer>(socket: string, method: string, message: object) => Promise<Answer>;
};
export { callCri };

const found = findContainers();

/** The socket of the container runtime; for the body of {@link describeContainers}. */
export const SOCKET = found.socket ?? '';

/**
 * As `describe`, for tests that need real containers. Where there are none it is skipped and its
 * name says why; where there must be some (`CLOUDLESS_CONTAINERS=required`, as in CI) it fails.
 */
export function describeContainers(name: string, body: () => void): void {
  if (found.socket !== undefined) describe(name, body);
  else if (!found.required) describe.skip(`${name} (${found.whyNot})`, body);
  else {
    describe(name, () => {
      it('has a container runtime', () => expect(found.whyNot).toBeUndefined());
    });
  }
}

/**
 * A cluster whose agents run containers beside processes, `agent-1` and so on, one in each zone.
 */
export function startOnContainers(
  zones: readonly string[] = ['zone-a', 'zone-b'],
  criSocket = SOCKET,
): Promise<RealCluster> {
  return RealCluster.start(zones, async () => undefined, { criSocket });
}

/** Ends the cluster. @throws when one of its pods or containers is left on the socket. */
export async function stopOnContainers(
  cluster: RealCluster | undefined,
  socket = SOCKET,
): Promise<void> {
  if (cluster === undefined) return; // it could not be started
  const { clusterId } = await cluster.client.getServerInfo({});
  await cluster.stop();
  const left = await podsOf(clusterId, socket);
  for (const id of left) await removePod(id, socket);
  expect(left).toEqual([]);
}

interface Labelled {
  readonly id: string;
  readonly labels: readonly { readonly key: string; readonly value: string }[];
}

/** The sandboxes of a cluster, by the label that its agents put on them. */
export async function podsOf(clusterId: string, socket = SOCKET): Promise<readonly string[]> {
  const { items } = await callCri<{ readonly items: readonly Labelled[] }>(
    socket,
    'ListPodSandbox',
    {},
  );
  const isOurs = ({ labels }: Labelled): boolean =>
    labels.some(({ key, value }) => key === 'io.cloudless.cluster' && value === clusterId);
  return items.filter(isOurs).map(({ id }) => id);
}

/** Ends and removes a pod, with its containers. */
export async function removePod(podSandboxId: string, socket = SOCKET): Promise<void> {
  await callCri(socket, 'StopPodSandbox', { podSandboxId });
  await callCri(socket, 'RemovePodSandbox', { podSandboxId });
}

/** The containers of a workload that run, as their agents see them. */
export async function containersOf(
  cluster: RealCluster,
  { status }: Workload,
): Promise<readonly ContainerStatus[]> {
  const ids = (status?.replicas ?? [])
    .map(({ containerId }) => containerId)
    .filter((containerId) => containerId !== '');
  return Promise.all(
    ids.map((containerId) => cluster.agentClient.getContainerStatus({ containerId })),
  );
}

/** The body of an answer; asks again as long as nobody listens. */
export async function fetchText(url: string): Promise<string> {
  for (;;) {
    try {
      const response = await fetch(url, { headers: { connection: 'close' } });
      return await response.text();
    } catch (reason) {
      if (!REFUSED.has((reason as { readonly cause?: NodeJS.ErrnoException }).cause?.code ?? ''))
        throw reason;
    }
  }
}
const REFUSED = new Set(['ECONNREFUSED', 'ECONNRESET', 'UND_ERR_SOCKET']);
