import { RemovalBarriers } from './removal-barriers.js';

describe('RemovalBarriers', () => {
  const [one, two] = [{ name: 'one' }, { name: 'two' }];
  let gone: string[];
  let barriers: RemovalBarriers;
  beforeEach(() => {
    gone = [];
    barriers = new RemovalBarriers((replicaIds) => gone.push(...replicaIds));
  });

  it('reports a replica once all readers have applied its removal', () => {
    barriers.add(['a', 'b'], 5n, [one, two]);
    barriers.acknowledge(one, 5n);
    barriers.acknowledge(two, 4n);
    expect(gone).toEqual([]);
    barriers.acknowledge(two, 6n);
    barriers.acknowledge(two, 7n);
    expect(gone).toEqual(['a', 'b']);
    expect([barriers.isGone('a'), barriers.size]).toEqual([true, 0]);
  });

  it('reports a replica at once without readers', () => {
    barriers.add(['a'], 5n, []);
    expect(gone).toEqual(['a']);
  });

  it('does not wait for a reader that has disconnected', () => {
    barriers.add(['a'], 5n, [one, two]);
    barriers.acknowledge(one, 5n);
    barriers.removeReader(two);
    expect(gone).toEqual(['a']);
  });

  it('forgets a replica that has ended', () => {
    barriers.add(['a'], 5n, [one]);
    barriers.removeReplica('a');
    barriers.acknowledge(one, 5n);
    expect([gone, barriers.size, barriers.isGone('a')]).toEqual([[], 0, false]);
  });
});
