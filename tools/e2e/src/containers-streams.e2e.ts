import { createGrpcTransport } from '@connectrpc/connect-node';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import {
  createAgentClient,
  type AgentClient,
  type CoordinatorClient,
  type LogEntry,
} from '@cloudless/api';
import { AGENT, CurlStream, createBufCurl, plainHttp } from './support/calls.js';
import { QUICK, type RealCluster } from './support/cluster.js';
import {
  listContainers,
  describeContainers,
  fetchText,
  startContainerCluster,
  stopContainerCluster,
} from './support/containers.js';
import { ExecCall } from './support/exec-call.js';
import { listProcessesMentioning } from './support/processes.js';
import { Terminal } from './support/terminal.js';

/** Rounds of the latency measurement. Odd, so that the median is one of the values. */
const ROUNDS = 21;
/**
 * Published limit of the time from the writing of a line to its arrival at a follower, in
 * milliseconds.
 */
const ARRIVES_WITHIN_MS = 200;
/** Time limit for the end of a command after its caller has disconnected. */
const ENDED_WITHIN_MS = 10_000;

describeContainers('a cluster with containers', () => {
  let cluster: RealCluster;
  let agentUrl: string;
  let agent: AgentClient;
  /** A single client, because each client keeps a connection for a while. */
  let client: CoordinatorClient;
  let containerId: string;
  let podUrl: string;
  beforeAll(async () => {
    cluster = await startContainerCluster(['zone-a']);
    agentUrl = `http://${String((await cluster.requireAgent('agent-1').waitForLog('agent started, connecting to coordinators'))['address'])}`;
    agent = createAgentClient(createGrpcTransport({ baseUrl: agentUrl }));
    client = cluster.client;
    const spec = {
      ...QUICK,
      image: 'nginx:alpine',
      env: { COLOUR: 'blue' },
      ports: [{ name: 'http', containerPort: 80 }],
    };
    // The agent is killed below and may be back only after its lease; a long lost_after keeps the
    // replica.
    const disconnect = { lostAfter: { seconds: 100n } };
    await client.createWorkload({ name: 'web', spec: { ...spec, disconnect } });
    const [container] = await listContainers(cluster, await cluster.waitUntilSettled('web'));
    containerId = container!.containerId;
    podUrl = `http://${container!.ip}`;
  });
  afterAll(() => stopContainerCluster(cluster));

  const servers = [
    { server: 'the port of the agent', url: () => agentUrl },
    { server: 'the port of the coordinator', url: () => cluster.url },
  ];
  const callers = [plainHttp, createBufCurl('connect'), createBufCurl('grpc')].map((caller) => ({
    caller,
    name: caller.name,
  }));
  const waitUntilGone = async (text: string): Promise<number> => {
    const startedMs = performance.now();
    while (listProcessesMentioning(text).length > 0) await client.listWorkloads({});
    return performance.now() - startedMs;
  };

  describe.each(servers)('on $server', ({ url }) => {
    it('sends earlier lines and a new line in StreamLogs with follow', async () => {
      const path = `/by-buf-curl-${new URL(url()).port}`;
      const stream = CurlStream.start('grpc', url(), `${AGENT}/StreamLogs`, {
        container_id: containerId,
        follow: true,
      });
      const waitForLine = (text: string) => (items: readonly unknown[]) =>
        (items as readonly { readonly line: string }[]).some(({ line }) => line.includes(text));
      try {
        await stream.waitUntil(waitForLine('serving on port 80'));
        await fetchText(podUrl + path);
        await stream.waitUntil(waitForLine(path));
      } finally {
        await stream.process.kill('SIGTERM');
      }
    });

    it.each(callers)(
      'returns stdout, stderr and exit code of ExecCommand through $name',
      async ({ caller }) => {
        const command = ['sh', '-c', 'echo a; echo b >&2; exit 3'];
        const { code, items } = await caller.call(url(), `${AGENT}/ExecCommand`, {
          container_id: containerId,
          command,
        });
        expect({ code, items }).toMatchObject({
          code: 'ok',
          items: [{ stdout: 'a\n', stderr: 'b\n', exitCode: 3, containerId }],
        });
      },
    );
  });

  it(`delivers a log line to a follower within ${ARRIVES_WITHIN_MS} ms (median)`, async () => {
    const ending = new AbortController();
    const entries = agent
      .streamLogs({ containerId, follow: true }, { signal: ending.signal })
      [Symbol.asyncIterator]();
    const waitForEntry = async (text: string): Promise<LogEntry> => {
      for (;;) {
        const { value } = (await entries.next()) as { readonly value: LogEntry };
        if (value.line.includes(text)) return value;
      }
    };
    await waitForEntry('serving on port 80'); // lines from here on are followed
    const delaysMs: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      await fetchText(`${podUrl}/round-${round}.`);
      const { time } = await waitForEntry(`/round-${round}.`);
      delaysMs.push(Date.now() - timestampMs(time!));
    }
    ending.abort();
    const median = delaysMs.sort((a, b) => a - b)[Math.floor(ROUNDS / 2)]!;
    process.stderr.write(
      `a followed line of a container is seen after ${median} ms (median of ${ROUNDS}; most ${delaysMs.at(-1)} ms)\n`,
    );
    // The median, because a single round may hit a pause of a busy machine.
    expect(median).toBeLessThan(ARRIVES_WITHIN_MS);
  });

  describe('through cloudlessctl exec -it', () => {
    it('allocates a terminal that follows the window size, and returns the exit code', async () => {
      const terminal = Terminal.open(cluster, ['exec', '-it', 'web', '--', 'sh'], {
        columns: 70,
        rows: 20,
      });
      terminal.sendText('echo size $(stty size) $COLOUR\n');
      await terminal.waitForText(/^size 20 70 blue/m);
      terminal.resize(90, 33);
      // the size is sent separately and may arrive after the next text
      terminal.sendText('until [ "$(stty size)" = "33 90" ]; do :; done; echo now $(stty size)\n');
      await terminal.waitForText(/^now 33 90/m);
      terminal.sendText('tty; exit 7\n');
      expect(await terminal.exited).toBe(7);
      expect(terminal.text).toMatch(/^\/dev\/(pts\/|console)/m);
    });

    it('ends the command when cloudlessctl is killed', async () => {
      const terminal = Terminal.open(
        cluster,
        ['exec', '-it', 'web', '--', 'sh', '-c', 'echo up; sleep 41001'],
        {
          columns: 80,
          rows: 24,
        },
      );
      await terminal.waitForText(/^up/m);
      expect(listProcessesMentioning('sleep 41001').length).toBeGreaterThan(0);
      terminal.kill('SIGKILL');
      expect(await waitUntilGone('sleep 41001')).toBeLessThan(ENDED_WITHIN_MS);
    });
  });

  it('streams input of Exec without a terminal, and ends the command when the caller disconnects', async () => {
    const call = new ExecCall(client, {
      name: 'web',
      command: ['sh', '-c', 'echo up; cat; exit 4'],
    });
    call.sendText('one');
    await call.readUntil((text) => text === 'up\none');
    call.endInput();
    expect(await call.readExitCode()).toBe(4);
    const endless = new ExecCall(client, {
      name: 'web',
      command: ['sh', '-c', 'echo up; sleep 41002'],
    });
    await endless.readUntil((text) => text === 'up\n');
    endless.cancelCall();
    expect(await waitUntilGone('sleep 41002')).toBeLessThan(ENDED_WITHIN_MS);
  });

  it('ends the command of Exec when the agent is killed', async () => {
    const call = new ExecCall(client, {
      name: 'web',
      command: ['sh', '-c', 'echo up; sleep 41003'],
    });
    await call.readUntil((text) => text === 'up\n');
    await cluster.requireAgent('agent-1').kill('SIGKILL');
    await expect(call.readExitCode()).rejects.toThrow('agent-1');
    await cluster.startAgent('agent-1', 'zone-a');
    await cluster.waitUntilSettled('web');
    expect(await waitUntilGone('sleep 41003')).toBeLessThan(ENDED_WITHIN_MS);
  });

  it('forwards a local port to a port of the pod', async () => {
    const forwarding = cluster.startCtl('port-forward', 'web', 'http');
    const line = await forwarding.waitForLine((text) => text.startsWith('Forwarding'));
    const [, address] = /^Forwarding (127\.0\.0\.1:\d+) -> /.exec(line)!;
    expect(await fetchText(`http://${address}/`)).toMatch(/Welcome to nginx!/);
    await forwarding.kill('SIGTERM');
  });
});
