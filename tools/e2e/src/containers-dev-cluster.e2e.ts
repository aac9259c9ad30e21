import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { createAgentClient, createCoordinatorClient } from '@cloudless/api';
import { AGENT, COORDINATOR, CurlStream, plainHttp } from './support/calls.js';
import { chooseWorkloadPorts } from './support/cluster.js';
import { SOCKET, describeContainers, fetchText, listPods } from './support/containers.js';
import { RunningProgram, findBundle, killAll, listProcessesUsing } from './support/processes.js';

describeContainers('a development cluster with containers', () => {
  let directory: string;
  let cluster: RunningProgram;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'cloudless-dev-'));
    const ports = [
      '--port',
      '0',
      '--ops-port',
      '0',
      '--agent-port',
      '0',
      '--workload-port',
      String(chooseWorkloadPorts(3_000)),
    ];
    const args = [findBundle('dev-cluster'), ...ports, '--runtime', 'cri', '--cri-socket', SOCKET];
    cluster = RunningProgram.start(process.execPath, args, { TMPDIR: directory, NO_COLOR: '1' });
  });
  afterAll(async () => {
    await cluster?.kill('SIGINT');
    const leftovers = listProcessesUsing(directory);
    killAll(leftovers);
    const files = await readdir(directory);
    await rm(directory, { recursive: true, force: true });
    expect({ leftovers, files }).toEqual({ leftovers: [], files: [] });
  });

  /** Returns the text after a label in the start-up output. */
  const readLabel = async (label: string): Promise<string> =>
    (await cluster.waitForLine((text) => text.trim().startsWith(`${label} `)))
      .trim()
      .split(/\s+/)
      .slice(1)
      .join(' ');

  it('prints the container runtime that it uses', async () => {
    expect(await readLabel('Runtime')).toMatch(new RegExp(`containerd .* at ${SOCKET}`));
  });

  it('runs the published CreateWorkload call: nginx answers on port 80, with logs and commands', async () => {
    const [url = ''] = (await readLabel('API')).split(' ');
    const body = {
      namespace: 'default',
      name: 'test',
      spec: { image: 'nginx:alpine', replicas: 2 },
    };
    expect(await plainHttp.call(url, `${COORDINATOR}/CreateWorkload`, body)).toMatchObject({
      code: 'ok',
    });
    const client = createCoordinatorClient(createGrpcTransport({ baseUrl: url }));
    const { nodeId, containerId } = await waitForTwoReady(client);
    const agentUrl = `http://${(await readLabel(nodeId)).split(' ').at(-1) ?? ''}`;
    const agent = createAgentClient(createGrpcTransport({ baseUrl: agentUrl }));
    const { ip } = await agent.getContainerStatus({ containerId });
    expect(await fetchText(`http://${ip}/`)).toMatch(/Welcome to nginx!/);

    const logs = CurlStream.start('connect', agentUrl, `${AGENT}/StreamLogs`, {
      container_id: containerId,
      follow: true,
    });
    await logs.waitUntil((items) =>
      (items as readonly { readonly line: string }[]).some(({ line }) =>
        line.includes('serving on port 80'),
      ),
    );
    await logs.process.kill('SIGTERM');
    const command = ['sh', '-c', 'echo a; echo b >&2; exit 3'];
    expect(
      await plainHttp.call(agentUrl, `${AGENT}/ExecCommand`, {
        container_id: containerId,
        command,
      }),
    ).toMatchObject({
      items: [{ stdout: 'a\n', stderr: 'b\n', exitCode: 3 }],
    });
  });

  it('removes its containers when it ends', async () => {
    const [url = ''] = (await readLabel('API')).split(' ');
    const { clusterId } = await createCoordinatorClient(
      createGrpcTransport({ baseUrl: url }),
    ).getServerInfo({});
    expect((await listPods(clusterId)).length).toBe(2);
    expect(await cluster.kill('SIGINT')).toBe(0);
    expect(await listPods(clusterId)).toEqual([]);
  });
});

type Client = ReturnType<typeof createCoordinatorClient>;

/** Waits until workload `test` has two ready replicas, and returns one of them. */
async function waitForTwoReady(
  client: Client,
): Promise<{ readonly nodeId: string; readonly containerId: string }> {
  const watch = new AbortController();
  try {
    for await (const { workload } of client.watchWorkloads(
      { namespace: 'default', name: 'test' },
      { signal: watch.signal },
    )) {
      if (workload?.status?.readyReplicas === 2) return workload.status.replicas[0]!;
    }
  } finally {
    watch.abort();
  }
  throw new Error('the watch of the workload ended');
}
