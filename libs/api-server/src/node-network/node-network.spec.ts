import { create, toBinary } from '@bufbuild/protobuf';
import {
  NetworkReportSchema,
  NetworkUpdateSchema,
  RelayNetworkRequestSchema,
  TunnelFrameSchema,
  createNodeNetworkClient,
  fromConnectError,
  type NetworkReport,
  type NetworkUpdate,
  type NodeNetworkClient,
  type RelayNetworkRequest,
  type TunnelFrame,
} from '@cloudless/api';
import { NodeBanRecordSchema } from '@cloudless/api/store';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { SLOW_READER_TIMEOUT_MS } from '../watch/slow-reader-timeout.js';

let bed: ApiTestBed;
let client: NodeNetworkClient;
let stop: AbortController;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  client = createNodeNetworkClient(bed.transport);
  stop = new AbortController();
  await bed.putNode('node-1', { hello: { nodeId: 'node-1', network: { hostId: 'h1' } } });
});
afterEach(async () => {
  stop.abort();
  await bed.stop();
});

/** Sends messages and leaves the stream open until the test ends. */
async function* openStream<Message>(...messages: Message[]): AsyncGenerator<Message> {
  yield* messages;
  await new Promise((resolve) => stop.signal.addEventListener('abort', resolve));
}

function report(fields: Partial<NetworkReport>): NetworkReport {
  return create(NetworkReportSchema, fields as object);
}

interface Outcome {
  readonly updates: NetworkUpdate[];
  failure?: string;
  ended?: boolean;
}

/** Reads the feed as the proxy of a node. */
function sync(...reports: NetworkReport[]): Outcome {
  const outcome: Outcome = { updates: [] };
  void (async () => {
    try {
      for await (const update of client.syncNetwork(openStream(...reports), {
        signal: stop.signal,
      }))
        outcome.updates.push(update);
    } catch (reason) {
      const { kind, message } = fromConnectError(reason);
      outcome.failure = `${kind}: ${message}`;
    }
    outcome.ended = true;
  })();
  return outcome;
}

const ban = () =>
  bed.state.commit(
    bed.state
      .transaction()
      .put('ban', 'node-1', create(NodeBanRecordSchema, { ban: { nodeId: 'node-1' } })),
  );

describe('SyncNetwork', () => {
  it('sends the updates of the feed and passes acknowledgements on', async () => {
    const first = { nodeId: 'node-1', feedId: 'feed', afterRevision: 7n };
    const outcome = sync(report(first), report({ appliedRevision: 9n }));
    await bed.settle();
    const [reader] = bed.network.readers;
    expect(reader?.position).toEqual({ nodeId: 'node-1', feedId: 'feed', revision: 7n });
    expect(reader?.acknowledged).toEqual([9n]);
    const update = create(NetworkUpdateSchema, { revision: 9n, complete: true });
    reader?.push(toBinary(NetworkUpdateSchema, update));
    await bed.settle();
    expect(outcome.updates).toMatchObject([{ revision: 9n, complete: true }]);
  });

  it.each([
    ['without a node', { nodeId: '' }, 'invalid: node_id: the first report must name the node'],
    ['of an unknown node', { nodeId: 'node-9' }, 'notFound: node "node-9" is not enrolled'],
  ])('refuses a first report %s', async (_, first, failure) => {
    const outcome = sync(report(first));
    await bed.settle();
    expect(outcome.failure).toBe(failure);
    expect(bed.network.readers).toEqual([]);
  });

  it('refuses a banned node, and ends the stream of a node that is banned later', async () => {
    const before = sync(report({ nodeId: 'node-1' }));
    await bed.settle();
    await ban();
    await bed.settle();
    expect([before.ended, bed.network.readers[0]?.isClosed]).toEqual([true, true]);
    const after = sync(report({ nodeId: 'node-1' }));
    await bed.settle();
    expect(after.failure).toBe('denied: node "node-1" is banned from this cluster');
  });

  it('ends the oldest of more than four streams of one node', async () => {
    const outcomes = Array.from({ length: 5 }, () => sync(report({ nodeId: 'node-1' })));
    await bed.settle();
    expect(outcomes.map(({ ended }) => ended ?? false)).toEqual([
      true,
      ...Array<boolean>(4).fill(false),
    ]);
  });

  it('frees the reader of a proxy that reads nothing for too long', async () => {
    const updates = client.syncNetwork(openStream(report({ nodeId: 'node-1' })), {
      signal: stop.signal,
    });
    const items = updates[Symbol.asyncIterator]();
    const first = items.next();
    await bed.settle();
    const [reader] = bed.network.readers;
    for (let count = 0; count < 3; count += 1) reader?.push(new Uint8Array());
    await first;
    await bed.clock.advance(SLOW_READER_TIMEOUT_MS + 1);
    expect(reader?.isClosed).toBe(true);
  });
});

describe('RelayNetwork', () => {
  const target = (fromNodeId: string, nodeId: string): RelayNetworkRequest =>
    create(RelayNetworkRequestSchema, {
      message: { case: 'target', value: { fromNodeId, nodeId } },
    });
  const data = (text: string): RelayNetworkRequest =>
    create(RelayNetworkRequestSchema, {
      message: { case: 'data', value: new TextEncoder().encode(text) },
    });

  it('splices the stream of a proxy with a tunnel to the agent of the target', async () => {
    const agent = await bed.connectAgent('node-2', { network: { hostId: 'h2' } });
    agent.sendInventory();
    await bed.settle();
    const received: string[] = [];
    const responses = client.relayNetwork(openStream(target('node-1', 'node-2'), data('ping')), {
      signal: stop.signal,
    });
    const reading = (async () => {
      for await (const response of responses)
        received.push(new TextDecoder().decode(response.data));
    })();
    await bed.settle();
    const request = agent.tunnelRequests[0];
    expect(request?.target).toMatchObject({ case: 'relay', value: { fromNodeId: 'node-1' } });
    const frames = async function* (): AsyncGenerator<TunnelFrame> {
      yield create(TunnelFrameSchema, { frame: { case: 'window', value: 65_536n } });
      for (const response of [
        { case: 'data' as const, value: new TextEncoder().encode('pong') },
        { case: 'end' as const, value: {} },
      ])
        yield create(TunnelFrameSchema, {
          frame: { case: 'forwardOutput', value: { response } },
        });
      await new Promise((resolve) => stop.signal.addEventListener('abort', resolve));
    };
    const sent: string[] = [];
    void (async () => {
      for await (const { frame } of agent.openTunnel(request?.tunnelId ?? '', frames()))
        if (frame.case === 'forwardInput' && frame.value.request.case === 'data')
          sent.push(new TextDecoder().decode(frame.value.request.value));
    })().catch(() => undefined);
    await reading;
    expect([received, sent]).toEqual([['pong'], ['ping']]);
  });

  it.each([
    ['to itself', 'node-1', 'node-1', 'invalid: target.node_id: must be another node'],
    ['to an unknown node', 'node-1', 'node-9', 'notFound: node "node-9" is not in this cluster'],
    ['to a node without a proxy', 'node-1', 'node-3', 'precondition: node "node-3" has no network'],
    ['to a node without a session', 'node-1', 'node-4', 'unavailable: node "node-4" is not conn'],
    ['from an unknown node', 'node-9', 'node-1', 'notFound: node "node-9" is not enrolled'],
  ])('refuses a stream %s', async (_, from, to, failure) => {
    await bed.putNode('node-3');
    await bed.putNode('node-4', { hello: { nodeId: 'node-4', network: { hostId: 'h4' } } });
    const responses = client.relayNetwork(openStream(target(from, to)), { signal: stop.signal });
    const reason: unknown = await (async () => {
      for await (const response of responses) void response;
    })().catch((error: unknown) => error);
    const { kind, message } = fromConnectError(reason);
    expect(`${kind}: ${message}`).toContain(failure);
  });
});
