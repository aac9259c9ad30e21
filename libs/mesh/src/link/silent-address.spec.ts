import { ManualClock } from '@cloudless/base/testing';
import type { Link } from './link.js';
import { PeerLinks, PeerRefusedError } from './peer-links.js';

/** A link that notes why it ends. */
const aLink = (path: 'link' | 'relay') => {
  const ends: string[] = [];
  const end = (reason: string): void => void ends.push(reason);
  const link = { path, isUsable: true, streamCount: 0, close: end, leave: end };
  return { link: link as unknown as Link, ends };
};

const aDial = () => {
  let resolve: (link: Link) => void = () => undefined;
  let reject: (reason: Error) => void = () => undefined;
  const promise = new Promise<Link>((...both) => ([resolve, reject] = both));
  return { promise, resolve, reject };
};

const begin = () => {
  const clock = new ManualClock();
  const direct = aDial();
  const relay = aDial();
  const dialled: string[] = [];
  const links = new PeerLinks({
    ...{ nodeId: 'b', maxLinks: 2, clock },
    dialDirect: () => (dialled.push('direct'), direct.promise),
    dialRelay: () => (dialled.push('relay'), relay.promise),
  });
  return { clock, direct, relay, dialled, links };
};

describe('the first connection to a node', () => {
  it('does not use the relay when the mesh address answers within 500 ms', async () => {
    const { clock, direct, dialled, links } = begin();
    const opened = links.get();
    await clock.advance(499);
    const near = aLink('link');
    direct.resolve(near.link);
    expect(await opened).toBe(near.link);
    await clock.advance(10_000);
    expect(dialled).toEqual(['direct']);
  });

  it('goes through the relay when the mesh address is silent, until that answers', async () => {
    const { clock, direct, relay, dialled, links } = begin();
    const opened = links.get();
    await clock.advance(500);
    expect(dialled).toEqual(['direct', 'relay']);
    const far = aLink('relay');
    relay.resolve(far.link);
    expect(await opened).toBe(far.link);
    expect(await links.get()).toBe(far.link);
    const near = aLink('link');
    direct.resolve(near.link);
    await clock.advance(1);
    expect(far.ends).toEqual(['a direct path']);
    expect(await links.get()).toBe(near.link);
  });

  it('closes the relay that opens after the direct path', async () => {
    const { clock, direct, relay, links } = begin();
    const opened = links.get();
    await clock.advance(500);
    const [near, far] = [aLink('link'), aLink('relay')];
    direct.resolve(near.link);
    expect(await opened).toBe(near.link);
    relay.resolve(far.link);
    await clock.advance(1);
    expect(far.ends).toEqual(['a direct path']);
  });

  it('fails with both reasons', async () => {
    const { clock, direct, relay, links } = begin();
    const opened = links.get().catch(String);
    await clock.advance(500);
    relay.reject(new Error('the node has no session'));
    direct.reject(new Error('no answer within 3000 ms'));
    expect(await opened).toContain(
      'no answer within 3000 ms; through the relay: the node has no session',
    );
  });

  it('tries no relay when the node at the address is not trusted', async () => {
    const { direct, dialled, links } = begin();
    const opened = links.get().catch(String);
    direct.reject(new PeerRefusedError('revoked'));
    expect(await opened).toContain('revoked');
    expect(dialled).toEqual(['direct']);
  });
});
