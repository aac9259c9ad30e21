import { CoordinatorService } from '@cloudless/api';
import { SERVED_SERVICES } from '@cloudless/api-server';
import { CALL_PRIORITIES } from '@cloudless/rpc-node/server';
import { classifyRpc, classifySecureRpc } from './rpc-classes.js';

/** Names of the RPCs of CoordinatorService with this priority. */
const rpcsWithPriority = (priority: string): readonly string[] =>
  CoordinatorService.methods
    .filter((method) => classifyRpc(method)?.priority === priority)
    .map(({ name }) => name);

describe('classifyRpc', () => {
  it.each(
    SERVED_SERVICES.flatMap(({ methods }) =>
      methods.map((method) => ({ rpc: String(method), method })),
    ),
  )('returns a priority for $rpc', ({ method }) => {
    expect(CALL_PRIORITIES).toContain(classifyRpc(method)?.priority);
  });

  it('returns priority control for the calls of agents, and stop for calls that reduce load', () => {
    expect(rpcsWithPriority('control')).toEqual([
      'EnrollNode',
      'Heartbeat',
      'RenewLease',
      'Session',
      'Tunnel',
      // Starts of replicas wait for their secrets and configs.
      'GetReplicaFiles',
    ]);
    expect(rpcsWithPriority('stop')).toEqual([
      'CordonNode',
      'DrainNode',
      'ConfirmNodeLost',
      'RemoveNode',
      'ScaleWorkload',
      'DeleteWorkload',
      'PauseRollout',
    ]);
  });

  it('does not let strangers who enrol go before users in a cluster with TLS', () => {
    const { enrollNode, session } = CoordinatorService.method;
    expect(classifySecureRpc(enrollNode)).toEqual({ priority: 'write', maxRequestBytes: 16_384 });
    expect(classifySecureRpc(session)).toEqual(classifyRpc(session));
  });

  it('returns priority read exactly for the calls that only read', () => {
    const reads = rpcsWithPriority('read');
    expect(
      reads.filter((name) => !/^(Get|List|Watch|Explain|Plan|Simulate|Propose|Stream)/.test(name)),
    ).toEqual([]);
    const control = rpcsWithPriority('control');
    const others = CoordinatorService.methods
      .map(({ name }) => name)
      .filter((name) => !reads.includes(name) && !control.includes(name));
    expect(others.filter((name) => /^(Get|List|Watch)/.test(name))).toEqual([]);
  });
});
