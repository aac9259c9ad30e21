import { create } from '@bufbuild/protobuf';
import { createClient } from '@connectrpc/connect';
import {
  AgentService,
  LogEntrySchema,
  NodeStatus_Phase as NodePhase,
  ReplicaStatus_Phase as Phase,
  TunnelFrameSchema,
  fromConnectError,
  toTunnelError,
  type TunnelFrame,
} from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import { ApiTestBed } from '../testing/api-test-bed.js';
import type { ScriptedAgent } from '../testing/scripted-agent.js';

const CONTAINER = 'c'.repeat(64);

let bed: ApiTestBed;
let agent: ScriptedAgent;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  await bed.putReplica('w-0', { phase: Phase.RUNNING, ready: true, containerId: CONTAINER });
  agent = await bed.connectAgent('node-1');
});
afterEach(() => bed.stop());

const execute = () => bed.client.execCommand({ replicaId: 'w-0', command: ['ls'] });

async function* frames(...items: TunnelFrame['frame'][]): AsyncGenerator<TunnelFrame> {
  for (const frame of items) yield create(TunnelFrameSchema, { frame });
}

/** Opens the newest requested tunnel and sends frames. */
async function answer(...items: TunnelFrame['frame'][]): Promise<void> {
  await bed.settle();
  const tunnelId = agent.tunnelRequests.at(-1)?.tunnelId ?? '';
  void (async () => {
    for await (const frame of agent.openTunnel(tunnelId, frames(...items))) void frame;
  })().catch(() => undefined);
  await bed.settle();
}

describe('TunnelHub', () => {
  it('requests a tunnel through the session and returns the result that the agent sends', async () => {
    const response = execute();
    await answer({
      case: 'exec',
      value: { $typeName: 'cloudless.api.ExecCommandResponse', stdout: 'a' } as never,
    });
    expect((await response).stdout).toBe('a');
    expect(agent.tunnelRequests).toMatchObject([
      { target: { case: 'exec', value: { containerId: CONTAINER } }, execInPieces: true },
    ]);
    expect(agent.tunnelRequests[0]?.tunnelId).toMatch(/^[0-9a-f]{32}$/);
  });

  it('fails with the code, reason and message of the error that the agent sends', async () => {
    const response = execute();
    const value = toTunnelError(new CloudlessError('CONTAINER_NOT_FOUND', 'no program'));
    const outcome = expect(response.catch((reason: unknown) => fromConnectError(reason)));
    await answer({ case: 'error', value });
    await outcome.resolves.toMatchObject({
      kind: 'notFound',
      reason: 'CONTAINER_NOT_FOUND',
      message: 'no program',
    });
  });

  it.each([
    {
      name: 'ends without a result',
      frame: [{ case: 'end', value: {} }],
      says: 'without a result',
    },
    { name: 'breaks', frame: [], says: 'was interrupted' },
  ])('fails a call when the stream of the agent $name', async ({ frame, says }) => {
    const outcome = expect(execute()).rejects.toThrow(says);
    await answer(...(frame as TunnelFrame['frame'][]));
    await outcome;
  });

  it('fails a call with the reason of the agent when the agent refuses the tunnel', async () => {
    const outcome = expect(execute()).rejects.toThrow('node "node-1": too many');
    await bed.settle();
    const tunnelId = agent.tunnelRequests[0]?.tunnelId ?? '';
    agent.send({ message: { case: 'tunnelRefused', value: { tunnelId, reason: 'too many' } } });
    await bed.settle();
    await outcome;
  });

  it('ignores the refusal of a tunnel by the agent of another node', async () => {
    const response = execute();
    await bed.settle();
    const tunnelId = agent.tunnelRequests[0]?.tunnelId ?? '';
    const other = await bed.connectAgent('node-2');
    other.send({ message: { case: 'tunnelRefused', value: { tunnelId, reason: 'mine' } } });
    await answer({
      case: 'exec',
      value: { $typeName: 'cloudless.api.ExecCommandResponse' } as never,
    });
    await expect(response).resolves.toBeDefined();
  });

  it('fails a requested tunnel when the session of the node ends, and a new one at once', async () => {
    const outcome = expect(execute()).rejects.toThrow('node "node-1" is not connected');
    await bed.settle();
    agent.disconnect();
    await bed.settle();
    await outcome;
    await expect(execute()).rejects.toThrow('node "node-1" is not connected');
  });

  it('fails a tunnel that the agent does not open within 10 s', async () => {
    const outcome = expect(execute()).rejects.toThrow('did not answer within 10000 ms');
    await bed.clock.advance(10_000);
    await outcome;
  });

  it('rejects a tunnel id that was used before', async () => {
    const response = execute();
    await answer({
      case: 'exec',
      value: { $typeName: 'cloudless.api.ExecCommandResponse' } as never,
    });
    await response;
    const tunnelId = agent.tunnelRequests[0]?.tunnelId ?? '';
    const again = agent.openTunnel(tunnelId, frames())[Symbol.asyncIterator]();
    await expect(again.next()).rejects.toThrow('no request waits for this tunnel');
  });

  it('rejects a second tunnel with the id of an open tunnel', async () => {
    const response = execute().catch(() => undefined);
    await bed.settle();
    const tunnelId = agent.tunnelRequests[0]?.tunnelId ?? '';
    const stayOpen = (async function* () {
      yield* frames({ case: 'window', value: 1n });
      await new Promise(() => undefined);
    })();
    void agent
      .openTunnel(tunnelId, stayOpen)
      [Symbol.asyncIterator]()
      .next()
      .catch(() => undefined);
    await bed.settle();
    const second = agent.openTunnel(tunnelId, frames({ case: 'end', value: {} as never }));
    void response;
    const outcome = second[Symbol.asyncIterator]().next();
    await expect(outcome).rejects.toThrow('no request waits for this tunnel');
    bed.nodes.setPhase('node-1', NodePhase.LOST);
    await bed.settle();
  });

  it('resumes followed logs after the last received line when the tunnel breaks', async () => {
    const received: bigint[] = [];
    const stopping = new AbortController();
    const reading = (async () => {
      const request = { replicaId: 'w-0', follow: true };
      for await (const entry of bed.client.streamLogs(request, { signal: stopping.signal }))
        received.push(entry.sequence);
    })().catch(() => undefined);
    const aLog = (sequence: bigint) => ({
      case: 'log' as const,
      value: create(LogEntrySchema, { containerId: CONTAINER, sequence }),
    });
    await answer(aLog(1n), aLog(2n));
    await bed.clock.advance(250);
    await answer(aLog(2n), aLog(3n));
    expect(received).toEqual([1n, 2n, 3n]);
    expect(agent.tunnelRequests[1]?.target).toMatchObject({
      case: 'logs',
      value: { after: [{ containerId: CONTAINER, sequence: 2n }] },
    });
    stopping.abort();
    await bed.settle();
    await reading;
  });

  it('rejects a tunnel whose first frame is not its id', async () => {
    const responses = bed.client.tunnel(frames({ case: 'window', value: 1n }));
    await expect(responses[Symbol.asyncIterator]().next()).rejects.toThrow('must be tunnel_id');
  });

  it('refuses the 33rd tunnel of a node', async () => {
    const containers = createClient(AgentService, bed.transport);
    const calls = Array.from({ length: 33 }, () =>
      containers.getContainerStatus({ containerId: CONTAINER }).catch((reason: Error) => reason),
    );
    await bed.settle();
    expect(agent.tunnelRequests).toHaveLength(32);
    expect(String(await calls[32])).toContain('32 streams to node "node-1" are open');
    agent.disconnect();
    await Promise.all(calls);
  });

  it('refuses the 17th command of one client on a node', async () => {
    const calls = Array.from({ length: 17 }, () => execute().catch((reason: Error) => reason));
    await bed.settle();
    expect(String(await calls[16])).toContain(
      'this client has 16 commands and forwarded connections',
    );
    agent.disconnect();
    await Promise.all(calls);
  });

  it('sends input only while the window of the agent is above 0', async () => {
    const received: string[] = [];
    const responses = bed.client.exec(
      (async function* () {
        yield {
          request: { case: 'start' as const, value: { replicaId: 'w-0', command: ['cat'] } },
        };
        for (const text of ['a', 'b', 'c'])
          yield { request: { case: 'stdin' as const, value: new TextEncoder().encode(text) } };
      })(),
    );
    const reading = (async () => {
      for await (const response of responses) void response;
    })().catch(() => undefined);
    await bed.settle();
    const tunnelId = agent.tunnelRequests[0]?.tunnelId ?? '';
    let grant: (bytes: bigint) => void = () => undefined;
    const granted = (async function* () {
      for (;;) {
        const value = await new Promise<bigint>((resolve) => (grant = resolve));
        yield create(TunnelFrameSchema, { frame: { case: 'window', value } });
      }
    })();
    void (async () => {
      for await (const { frame } of agent.openTunnel(tunnelId, granted))
        if (frame.case === 'execInput' && frame.value.request.case === 'stdin')
          received.push(new TextDecoder().decode(frame.value.request.value));
    })().catch(() => undefined);
    await bed.settle();
    expect(received).toEqual([]);
    grant(1n);
    await bed.settle();
    expect(received).toEqual(['a']);
    // The first frame has used its data and 256 bytes of the window, so the window is 0.
    grant(256n);
    await bed.settle();
    expect(received).toEqual(['a']);
    grant(1n);
    await bed.settle();
    expect(received).toEqual(['a', 'b']);
    agent.disconnect();
    bed.nodes.setPhase('node-1', NodePhase.LOST);
    await bed.settle();
    await reading;
  });

  it('fails a requested tunnel when the server closes', async () => {
    const open = execute();
    const outcome = expect(open).rejects.toThrow('shutting down');
    await bed.settle();
    const closing = bed.stop();
    await outcome;
    await expect(execute()).rejects.toThrow();
    await closing;
    bed = await ApiTestBed.open();
  });
});
