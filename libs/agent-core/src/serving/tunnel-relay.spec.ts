import { create } from '@bufbuild/protobuf';
import { settle } from '@cloudless/base/testing';
import { PortForwardRequestSchema, RelayStartSchema, type TunnelFrame } from '@cloudless/api';
import { PushQueue } from '@cloudless/runtime';
import { AgentTestBed } from '../testing/index.js';
import { MAX_RELAYS, MAX_TUNNELS } from './tunnel-server.js';

const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
const toBytes = (value: string): Uint8Array => new TextEncoder().encode(value);

/** A connection to the network proxy of the node. */
class ProxyStream {
  readonly data = new PushQueue<Uint8Array>({ limit: 10 });
  readonly written: string[] = [];

  async write(bytes: Uint8Array): Promise<void> {
    this.written.push(text(bytes));
  }

  end(): void {
    this.written.push('end');
  }

  destroy(): void {
    this.written.push('destroy');
    this.data.end();
  }
}

describe('a relayed connection in a tunnel', () => {
  let bed: AgentTestBed;
  const peers: string[] = [];
  let stream: ProxyStream;
  const openRelay = async (tunnelId = 't1'): Promise<void> => {
    const value = create(RelayStartSchema, { fromNodeId: 'node-2' });
    bed.coordinator.openTunnel(tunnelId, { case: 'relay', value });
    await settle();
  };
  const framesOf = (tunnelId = 't1'): readonly TunnelFrame['frame'][] =>
    bed.coordinator.tunnels.get(tunnelId) ?? [];
  const receive = async (request: 'end' | string): Promise<void> => {
    const data =
      request === 'end' ? { case: 'end', value: {} } : { case: 'data', value: toBytes(request) };
    bed.coordinator.sendInTunnels({
      case: 'forwardInput',
      value: create(PortForwardRequestSchema, { request: data as never }),
    });
    await settle();
  };

  beforeEach(() => {
    bed = new AgentTestBed();
    peers.length = 0;
    stream = new ProxyStream();
    bed.network = {
      findProblem: () => '',
      findServices: async () => undefined,
      findServiceAddresses: async () => undefined,
      openRelay: async (fromNodeId) => {
        peers.push(fromNodeId);
        return stream;
      },
    };
  });

  it('reaches the network proxy with the id of the node that connects, and carries bytes both ways', async () => {
    await bed.start();
    await openRelay();
    await receive('hello');
    stream.data.push(toBytes('welcome'));
    await settle();
    expect([peers, stream.written]).toEqual([['node-2'], ['hello']]);
    const output = framesOf().flatMap((frame) =>
      frame.case === 'forwardOutput' && frame.value.response.case === 'data'
        ? [text(frame.value.response.value)]
        : [],
    );
    expect(output).toEqual(['welcome']);
  });

  it('closes each half separately', async () => {
    await bed.start();
    await openRelay();
    await receive('end');
    expect(stream.written).toEqual(['end']);
    stream.data.end();
    await settle();
    expect(framesOf().at(-1)?.case).toBe('end');
  });

  it('breaks with the connection to the coordinator', async () => {
    await bed.start();
    await openRelay();
    bed.coordinator.endTunnels();
    await settle();
    expect(stream.written).toContain('destroy');
  });

  it('is refused by a node without a network proxy', async () => {
    bed.network = undefined;
    await bed.start();
    await openRelay();
    expect(framesOf().at(-1)).toMatchObject({
      case: 'error',
      value: { message: 'node node-1 has no network proxy' },
    });
  });

  it('does not count against the tunnels of clients, and has a limit of its own', async () => {
    await bed.start();
    for (let index = 0; index <= MAX_RELAYS; index += 1) await openRelay(`t${index}`);
    const refusals = bed.coordinator.received.flatMap((message) =>
      message.case === 'tunnelRefused' ? [message.value.reason] : [],
    );
    expect(MAX_RELAYS).toBeGreaterThan(MAX_TUNNELS);
    expect(refusals).toEqual([`the node already serves ${MAX_RELAYS} relayed connections`]);
  });
});
