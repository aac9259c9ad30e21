import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { NodeDirectory } from './node-directory.js';

const NODES = ['a', 'b', 'c', 'd', 'e', 'f'];

describe('NodeDirectory', () => {
  it('engages the replacement brake at a mass loss, also when the brake is checked 37 s later', async () => {
    const clock = new ManualClock();
    const nodes = new NodeDirectory({ clock, log: silentLog, leaseMs: 3_000 });
    nodes.start([]);
    for (const nodeId of NODES) nodes.startSession(nodeId);
    // The leases end after 3 s. A coordinator that is busy with the loss may check the brake after
    // its window of 30 s.
    await clock.advance(40_000);
    expect(nodes.checkReplacementBrake()).toMatchObject({
      kind: 'holding',
      silentCount: NODES.length,
    });
    nodes.close();
  });
});
