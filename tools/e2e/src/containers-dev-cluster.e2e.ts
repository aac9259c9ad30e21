import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createAgentClient, createCoordinatorClient } from '@cloudless/api';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { AGENT, COORDINATOR, CurlStream, plainHttp } from './calls.js';
import { workloadPorts } from './cluster.js';
import { SOCKET, describeContainers, fetchText, podsOf } from './containers.js';
import { Running, bundleOf, killAll, processesUsing } from './processes.js';

describeContainers('the development cluster on containers', () => {
  let directory: string;
  let cluster: Running;
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
      String(workloadPorts(3_000)),
    ];
    const args = [bundleOf('dev-cluster'), ...ports, '--runtime', 'cri', '--cri-socket', SOCKET];
    cluster = Running.start(process.execPath, args, { TMPDIR: directory, NO_COLOR: '1' });
  });
  afterAll(async () => {
    await cluster?.kill('SIGINT');
    const left = processesUsing(directory);
    killAll(left);
    const files = await readdir(directory);
    await rm(directory, { recursive: true, force: true });
    expect({ left, files }).toEqual({ left: [], files: [] });
  });

  /** Returns the text after a label in the start-up output. */
  const told = async (label: string): Promise<string> =>
    (await cluster.line((text) => text.trim().startsWith(`${label} `)))
      .trim()
      .split(/\s+/)
      .slice(1)
      .join(' ');

  it('names the container runtime that it uses', async () => {
    expect(await told('Runtime')).toMatch(new RegExp(`containerd .* at ${SOCKET}`));
  });

  it('runs the published call: two replicas of nginx:alpine on port 80 of their own addresses, with logs and commands', async () => {
    const [url = ''] = (await told('API')).split(' ');
    const body = {
      namespace: 'default',
      name: 'test',
      spec: { image: 'nginx:alpine', replicas: 2 },
    };
    expect(await plainHttp.call(url, `${COORDINATOR}/CreateWorkload`, body)).toMatchObject({
      code: 'ok',
    });
    const client = createCoordinatorClient(createGrpcTransport({ baseUrl: url }));
    const { nodeId, containerId } = await firstOfTwoReady(client);
    const agentUrl = `http://${(await told(nodeId)).split(' ').at(-1) ?? ''}`;
    const agent = createAgentClient(createGrpcTransport({ baseUrl: agentUrl }));
    const { ip } = await agent.getContainerStatus({ containerId });
    expect(await fetchText(`http://${ip}/`)).toMatch(/Welcome to nginx!/);

    const logs = CurlStream.start('connect', agentUrl, `${AGENT}/StreamLogs`, {
      container_id: containerId,
      follow: true,
    });
    await logs.until((items) =>
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
    const [url = ''] = (await told('API')).split(' ');
    const { clusterId } = await createCoordinatorClient(
      createGrpcTransport({ baseUrl: url }),
    ).getServerInfo({});
    expect((await podsOf(clusterId)).length).toBe(2);
    expect(await cluster.kill('SIGINT')).toBe(0);
    expect(await podsOf(clusterId)).toEqual([]);
  });
});

type Client = ReturnType<typeof createCoordinatorClient>;

async function firstOfTwoReady(
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
