import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { NodeDirectory } from './node-directory.js';

const NODES = ['a', 'b', 'c', 'd', 'e', 'f'];

describe('NodeDirectory', () => {
  it('engages the replacement brake at the moment of a mass loss, however late it is checked', async () => {
    const clock = new ManualClock();
    const nodes = new NodeDirectory({ clock, log: silentLog, leaseMs: 3_000 });
    nodes.start([]);
    for (const nodeId of NODES) nodes.startSession(nodeId);
    // A coordinator that is busy with the loss itself may check after the window of the brake.
    await clock.advance(40_000);
    expect(nodes.checkReplacementBrake()).toMatchObject({ kind: 'holding', silent: NODES.length });
    nodes.close();
  });
});
