import { create } from '@bufbuild/protobuf';
import { settle } from '@cloudless/base/testing';
import { StreamLogsRequestSchema } from '@cloudless/api';
import { aStartOrder, AgentTestBed } from '../testing/index.js';

describe('TunnelServer when an OpenTunnel is repeated', () => {
  let testBed: AgentTestBed;
  const openTunnel = async (): Promise<void> => {
    const value = create(StreamLogsRequestSchema, { replicaId: 'web-1', follow: true });
    testBed.coordinator.openTunnel('t1', { case: 'logs', value });
    await settle();
  };
  const countRefusals = (): number =>
    testBed.coordinator.received.filter(({ case: kind }) => kind === 'tunnelRefused').length;

  beforeEach(async () => {
    testBed = new AgentTestBed();
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    await openTunnel();
  });

  it('dials no second connection and sends no refusal while the tunnel is open', async () => {
    const dials = testBed.coordinator.dials.length;
    await openTunnel();
    expect([testBed.coordinator.dials.length, countRefusals()]).toEqual([dials, 0]);
  });

  it('opens the tunnel again after the tunnel has ended', async () => {
    testBed.coordinator.endTunnels();
    await settle();
    const dials = testBed.coordinator.dials.length;
    await openTunnel();
    expect([testBed.coordinator.dials.length, countRefusals()]).toEqual([dials + 1, 0]);
  });
});
