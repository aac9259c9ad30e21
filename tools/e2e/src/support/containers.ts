import type { ContainerStatus, Workload } from '@cloudless/api';
import { RealCluster } from './cluster.js';

// modules of tools/containers, which are JavaScript outside of this package
const { findContainers } = (await import(
  new URL('../../../containers/find.mjs', import.meta.url).href
)) as {
  readonly findContainers: () => {
    readonly required: boolean;
    readonly socket?: string;
    readonly whyNot?: string;
  };
};
const { callCri } = (await import(
  new URL('../../../containers/cri.mjs', import.meta.url).href
)) as {
  readonly callCri: <Answer>(socket: string, method: string, message: object) => Promise<Answer>;
};
export { callCri };

const runtime = findContainers();

/** Socket of the container runtime; empty outside of the body of {@link describeContainers}. */
export const SOCKET = runtime.socket ?? '';

/**
 * Same as `describe`, for tests that need real containers. Without a container runtime the tests
 * are skipped, and the title has the reason. With `CLOUDLESS_CONTAINERS=required`, as in CI, a test
 * fails instead.
 */
export function describeContainers(name: string, body: () => void): void {
  if (runtime.socket !== undefined) describe(name, body);
  else if (!runtime.required) describe.skip(`${name} (${runtime.whyNot})`, body);
  else {
    describe(name, () => {
      it('has a container runtime', () => expect(runtime.whyNot).toBeUndefined());
    });
  }
}

/** Starts a cluster whose agents run containers and processes, one agent in each zone. */
export function startContainerCluster(
  zones: readonly string[] = ['zone-a', 'zone-b'],
  criSocket = SOCKET,
): Promise<RealCluster> {
  return RealCluster.start(zones, async () => undefined, { criSocket });
}

/**
 * Stops the cluster. Expects that no pod of the cluster is left; removes those that are.
 * @param cluster - Undefined when the cluster could not be started.
 */
export async function stopContainerCluster(
  cluster: RealCluster | undefined,
  socket = SOCKET,
): Promise<void> {
  if (cluster === undefined) return; // the cluster could not be started
  const { clusterId } = await cluster.client.getServerInfo({});
  await cluster.stop();
  const left = await listPods(clusterId, socket);
  for (const id of left) await removePod(id, socket);
  expect(left).toEqual([]);
}

interface Labelled {
  readonly id: string;
  readonly labels: readonly { readonly key: string; readonly value: string }[];
}

/** Lists the pod sandboxes of a cluster by the label that its agents set. */
export async function listPods(clusterId: string, socket = SOCKET): Promise<readonly string[]> {
  const { items } = await callCri<{ readonly items: readonly Labelled[] }>(
    socket,
    'ListPodSandbox',
    {},
  );
  const isOurs = ({ labels }: Labelled): boolean =>
    labels.some(({ key, value }) => key === 'io.cloudless.cluster' && value === clusterId);
  return items.filter(isOurs).map(({ id }) => id);
}

/** Stops and removes a pod with its containers. */
export async function removePod(podSandboxId: string, socket = SOCKET): Promise<void> {
  await callCri(socket, 'StopPodSandbox', { podSandboxId });
  await callCri(socket, 'RemovePodSandbox', { podSandboxId });
}

/** Lists the running containers of a workload as their agents report them. */
export async function listContainers(
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

/** Fetches a text. Retries without a limit while the connection is refused or reset. */
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
/** Error codes after which {@link fetchText} retries. */
const REFUSED = new Set(['ECONNREFUSED', 'ECONNRESET', 'UND_ERR_SOCKET']);
