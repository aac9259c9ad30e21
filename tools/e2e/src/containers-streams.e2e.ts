import {
  createAgentClient,
  type AgentClient,
  type CoordinatorClient,
  type LogEntry,
} from '@cloudless/api';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import { AGENT, CurlStream, bufCurl, plainHttp } from './calls.js';
import { QUICK, type RealCluster } from './cluster.js';
import {
  containersOf,
  describeContainers,
  fetchText,
  startOnContainers,
  stopOnContainers,
} from './containers.js';
import { ExecCall } from './exec-call.js';
import { processesMentioning } from './processes.js';
import { Terminal } from './terminal.js';

const ROUNDS = 21;
/**
 * The published limit from the moment a line was written until somebody who follows the log sees
 * it.
 */
const SEEN_WITHIN_MS = 200;
/** What a caller left behind is gone by then. */
const ENDED_WITHIN_MS = 10_000;

describeContainers('logs, commands and ports of a container', () => {
  let cluster: RealCluster;
  let agentUrl: string;
  let agent: AgentClient;
  /** One, as each has a connection of its own that it keeps for a while. */
  let client: CoordinatorClient;
  let containerId: string;
  let podUrl: string;
  beforeAll(async () => {
    cluster = await startOnContainers(['zone-a']);
    agentUrl = `http://${String((await cluster.agent('agent-1').logged('agent ready'))['address'])}`;
    agent = createAgentClient(createGrpcTransport({ baseUrl: agentUrl }));
    client = cluster.client;
    const spec = {
      ...QUICK,
      image: 'nginx:alpine',
      env: { COLOUR: 'blue' },
      ports: [{ name: 'http', containerPort: 80 }],
    };
    // Its agent is killed below, and may be back only after its lease: the container stays what it
    // is.
    const disconnect = { lostAfter: { seconds: 100n } };
    await client.createWorkload({ name: 'web', spec: { ...spec, disconnect } });
    const [container] = await containersOf(cluster, await cluster.settled('web'));
    containerId = container!.containerId;
    podUrl = `http://${container!.ip}`;
  });
  afterAll(() => stopOnContainers(cluster));

  const places = [
    { place: "the agent's own port", url: () => agentUrl },
    { place: "the coordinator's port", url: () => cluster.url },
  ];
  const callers = [plainHttp, bufCurl('connect'), bufCurl('grpc')].map((caller) => ({
    caller,
    name: caller.name,
  }));
  const untilGone = async (text: string): Promise<number> => {
    const began = performance.now();
    while (processesMentioning(text).length > 0) await client.listWorkloads({});
    return performance.now() - began;
  };

  describe.each(places)('on $place', ({ url }) => {
    it('StreamLogs with follow shows what was written before and a line written now', async () => {
      const path = `/by-buf-curl-${new URL(url()).port}`;
      const stream = CurlStream.start('grpc', url(), `${AGENT}/StreamLogs`, {
        container_id: containerId,
        follow: true,
      });
      const shows = (text: string) => (items: readonly unknown[]) =>
        (items as readonly { readonly line: string }[]).some(({ line }) => line.includes(text));
      try {
        await stream.until(shows('serving on port 80'));
        await fetchText(podUrl + path);
        await stream.until(shows(path));
      } finally {
        await stream.process.kill('SIGTERM');
      }
    });

    it.each(callers)(
      'ExecCommand by $name tells stdout, stderr and the exit code apart',
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

  it(`a followed line is seen within ${SEEN_WITHIN_MS} ms after it was written`, async () => {
    const ending = new AbortController();
    const entries = agent
      .streamLogs({ containerId, follow: true }, { signal: ending.signal })
      [Symbol.asyncIterator]();
    const untilSeen = async (text: string): Promise<LogEntry> => {
      for (;;) {
        const { value } = (await entries.next()) as { readonly value: LogEntry };
        if (value.line.includes(text)) return value;
      }
    };
    await untilSeen('serving on port 80'); // from here on what is written is followed
    const tookMs: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      await fetchText(`${podUrl}/round-${round}.`);
      const { time } = await untilSeen(`/round-${round}.`);
      tookMs.push(Date.now() - timestampMs(time!));
    }
    ending.abort();
    const median = tookMs.sort((a, b) => a - b)[Math.floor(ROUNDS / 2)]!;
    process.stderr.write(
      `a followed line of a container is seen after ${median} ms (median of ${ROUNDS}; most ${tookMs.at(-1)} ms)\n`,
    );
    // The median: one round may fall into a pause of a busy machine, not half of them.
    expect(median).toBeLessThan(SEEN_WITHIN_MS);
  });

  describe('cloudlessctl exec -it', () => {
    it('gives a terminal that follows the size of the window, and passes the exit code on', async () => {
      const terminal = Terminal.open(cluster, ['exec', '-it', 'web', '--', 'sh'], {
        columns: 70,
        rows: 20,
      });
      terminal.type('echo size $(stty size) $COLOUR\n');
      await terminal.shows(/^size 20 70 blue/m);
      terminal.resize(90, 33);
      // The size comes by a way of its own, maybe after what is typed next.
      terminal.type('until [ "$(stty size)" = "33 90" ]; do :; done; echo now $(stty size)\n');
      await terminal.shows(/^now 33 90/m);
      terminal.type('tty; exit 7\n');
      expect(await terminal.exited).toBe(7);
      expect(terminal.text).toMatch(/^\/dev\/(pts\/|console)/m);
    });

    it('ends the process when whoever called has vanished', async () => {
      const terminal = Terminal.open(
        cluster,
        ['exec', '-it', 'web', '--', 'sh', '-c', 'echo up; sleep 41001'],
        {
          columns: 80,
          rows: 24,
        },
      );
      await terminal.shows(/^up/m);
      expect(processesMentioning('sleep 41001').length).toBeGreaterThan(0);
      terminal.kill('SIGKILL');
      expect(await untilGone('sleep 41001')).toBeLessThan(ENDED_WITHIN_MS);
    });
  });

  it('a command without a terminal carries input, and ends with its caller too', async () => {
    const call = new ExecCall(client, {
      name: 'web',
      command: ['sh', '-c', 'echo up; cat; exit 4'],
    });
    call.type('one');
    await call.until((text) => text === 'up\none');
    call.end();
    expect(await call.exit()).toBe(4);
    const endless = new ExecCall(client, {
      name: 'web',
      command: ['sh', '-c', 'echo up; sleep 41002'],
    });
    await endless.until((text) => text === 'up\n');
    endless.cut();
    expect(await untilGone('sleep 41002')).toBeLessThan(ENDED_WITHIN_MS);
  });

  it('a command whose agent was killed ends with it', async () => {
    const call = new ExecCall(client, {
      name: 'web',
      command: ['sh', '-c', 'echo up; sleep 41003'],
    });
    await call.until((text) => text === 'up\n');
    await cluster.agent('agent-1').kill('SIGKILL');
    await expect(call.exit()).rejects.toThrow('agent-1');
    await cluster.startAgent('agent-1', 'zone-a');
    await cluster.settled('web');
    expect(await untilGone('sleep 41003')).toBeLessThan(ENDED_WITHIN_MS);
  });

  it('port-forward leads into the pod', async () => {
    const forwarding = cluster.startCtl('port-forward', 'web', 'http');
    const line = await forwarding.line((text) => text.startsWith('Forwarding'));
    const [, address] = /^Forwarding (127\.0\.0\.1:\d+) -> /.exec(line)!;
    expect(await fetchText(`http://${address}/`)).toMatch(/Welcome to nginx!/);
    await forwarding.kill('SIGTERM');
  });
});
