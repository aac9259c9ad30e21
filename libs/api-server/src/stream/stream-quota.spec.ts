import { StreamQuota } from './stream-quota.js';

const oneClient = {};
const otherClient = {};

describe('StreamQuota', () => {
  it('refuses a stream beyond the limit of the client, and beyond the limit of the node', () => {
    const quota = new StreamQuota({ perNode: 3, perClient: 2, noun: 'logs' });
    quota.acquire('node-1', oneClient);
    quota.acquire('node-1', oneClient);
    expect(() => quota.acquire('node-1', oneClient)).toThrow(
      'this client has 2 logs of node "node-1" open; close some first',
    );
    quota.acquire('node-1', otherClient);
    expect(() => quota.acquire('node-1', otherClient)).toThrow(
      '3 logs of node "node-1" are open; close some first',
    );
  });

  it('accepts streams of another node when one node has reached its limit', () => {
    const quota = new StreamQuota({ perNode: 1, perClient: 1, noun: 'logs' });
    quota.acquire('node-1', oneClient);
    quota.acquire('node-2', oneClient);
    expect(() => quota.acquire('node-2', otherClient)).toThrow('are open');
  });

  it('releases a reservation only once when its release function is called twice', () => {
    const quota = new StreamQuota({ perNode: 2, perClient: 2, noun: 'logs' });
    const release = quota.acquire('node-1', undefined);
    quota.acquire('node-1', undefined);
    release();
    release();
    quota.acquire('node-1', undefined);
    expect(() => quota.acquire('node-1', undefined)).toThrow('this client has 2 logs');
  });

  it('reduces the number of streams of a client when one of its two reservations is released', () => {
    const quota = new StreamQuota({ perNode: 9, perClient: 2, noun: 'logs' });
    const release = quota.acquire('node-1', oneClient);
    quota.acquire('node-1', oneClient);
    release();
    quota.acquire('node-1', oneClient);
    expect(() => quota.acquire('node-1', oneClient)).toThrow('this client has 2 logs');
  });

  it('reduces the number of streams of a node when a reservation is released', () => {
    const quota = new StreamQuota({ perNode: 2, perClient: 2, noun: 'logs' });
    const release = quota.acquire('node-1', oneClient);
    quota.acquire('node-1', otherClient);
    release();
    quota.acquire('node-1', otherClient);
    expect(() => quota.acquire('node-1', oneClient)).toThrow('2 logs of node "node-1" are open');
  });
});
