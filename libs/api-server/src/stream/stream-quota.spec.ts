import { StreamQuota } from './stream-quota.js';

const someone = {};
const another = {};

describe('StreamQuota', () => {
  it('leaves capacity for other clients when one client has reached its limit', () => {
    const shares = new StreamQuota({ perNode: 3, perClient: 2, noun: 'logs' });
    shares.acquire('node-1', someone);
    shares.acquire('node-1', someone);
    expect(() => shares.acquire('node-1', someone)).toThrow(
      'this client has 2 logs of node "node-1" open; close some first',
    );
    shares.acquire('node-1', another);
    expect(() => shares.acquire('node-1', another)).toThrow(
      '3 logs of node "node-1" are open; close some first',
    );
  });

  it('counts the streams of each node separately', () => {
    const shares = new StreamQuota({ perNode: 1, perClient: 1, noun: 'logs' });
    shares.acquire('node-1', someone);
    shares.acquire('node-2', someone);
    expect(() => shares.acquire('node-2', another)).toThrow('are open');
  });

  it('releases a reservation once when it is released repeatedly', () => {
    const shares = new StreamQuota({ perNode: 2, perClient: 2, noun: 'logs' });
    const giveBack = shares.acquire('node-1', undefined);
    shares.acquire('node-1', undefined);
    giveBack();
    giveBack();
    shares.acquire('node-1', undefined);
    expect(() => shares.acquire('node-1', undefined)).toThrow('this client has 2 logs');
  });

  it('reduces the number of streams of a client when one of its two reservations is released', () => {
    const quota = new StreamQuota({ perNode: 9, perClient: 2, noun: 'logs' });
    const release = quota.acquire('node-1', someone);
    quota.acquire('node-1', someone);
    release();
    quota.acquire('node-1', someone);
    expect(() => quota.acquire('node-1', someone)).toThrow('this client has 2 logs');
  });

  it('reduces the number of streams of a node when a reservation is released', () => {
    const quota = new StreamQuota({ perNode: 2, perClient: 2, noun: 'logs' });
    const release = quota.acquire('node-1', someone);
    quota.acquire('node-1', another);
    release();
    quota.acquire('node-1', another);
    expect(() => quota.acquire('node-1', someone)).toThrow('2 logs of node "node-1" are open');
  });
});
