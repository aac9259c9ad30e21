import { ManualClock, settle } from '@cloudless/base/testing';
import type { Link } from './link.js';
import { PeerLinks, PeerRefusedError } from './peer-links.js';

class TestLink {
  isUsable = true;
  streamCount = 0;
  readonly left: string[] = [];

  constructor(readonly path: 'link' | 'relay') {}

  leave(reason: string): void {
    this.isUsable = false;
    this.left.push(reason);
  }
}

let clock: ManualClock;
let directFailure: Error | undefined;
let dials: string[];
let peer: PeerLinks;
beforeEach(() => {
  clock = new ManualClock();
  directFailure = new Error('no route');
  dials = [];
  const link = (path: 'link' | 'relay'): Promise<Link> => {
    dials.push(path);
    if (path === 'link' && directFailure !== undefined) return Promise.reject(directFailure);
    return Promise.resolve(new TestLink(path) as unknown as Link);
  };
  peer = new PeerLinks({
    ...{ nodeId: 'b', maxLinks: 2, clock },
    dialDirect: () => link('link'),
    dialRelay: () => link('relay'),
  });
});

describe('paths to the proxy of another node', () => {
  it('use the relay while the node cannot be dialled, and try again to dial every 30 s', async () => {
    const relayed = await peer.get();
    expect([relayed.path, dials]).toEqual(['relay', ['link', 'relay']]);
    await clock.advance(29_999);
    expect(await peer.get()).toBe(relayed);
    expect(dials).toHaveLength(2);
    await clock.advance(1);
    expect(await peer.get()).toBe(relayed);
    await settle();
    expect([await peer.get(), dials.slice(2)]).toEqual([relayed, ['link']]);
  });

  it('become direct once the node can be dialled, and the relay ends with its streams', async () => {
    const relayed = (await peer.get()) as unknown as TestLink;
    directFailure = undefined;
    await clock.advance(30_000);
    await peer.get();
    await settle();
    expect(await peer.get()).toMatchObject({ path: 'link' });
    expect(relayed.left).toEqual(['a direct path']);
  });

  it('do not lead through the relay to a peer that is not trusted', async () => {
    directFailure = new PeerRefusedError('the certificate is revoked');
    await expect(peer.get()).rejects.toThrow('the certificate is revoked');
    expect(dials).toEqual(['link']);
  });
});
