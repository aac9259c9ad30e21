import { AdminService, AgentService, CoordinatorService } from '@cloudless/api';
import { LANES } from '@cloudless/rpc-server';
import { classOfRpc } from './lanes.js';

const services = [CoordinatorService, AgentService, AdminService];
const lanesOf = (lane: string): readonly string[] =>
  CoordinatorService.methods
    .filter((method) => classOfRpc(method)?.lane === lane)
    .map(({ name }) => name);

it.each(
  services.flatMap(({ methods }) => methods.map((method) => ({ rpc: String(method), method }))),
)('classifyRpc gives $rpc a priority', ({ method }) => {
  expect(LANES).toContain(classOfRpc(method)?.lane);
});

it('classifyRpc gives sessions of agents control priority, and calls that reduce load stop priority', () => {
  expect(lanesOf('control')).toEqual(['EnrollNode', 'Heartbeat', 'Session', 'Tunnel']);
  expect(lanesOf('stop')).toEqual([
    'CordonNode',
    'DrainNode',
    'ConfirmNodeLost',
    'RemoveNode',
    'ScaleWorkload',
    'DeleteWorkload',
    'PauseRollout',
  ]);
});

it('classifyRpc gives read priority to exactly the read-only calls', () => {
  const reads = lanesOf('read');
  expect(reads.filter((name) => !/^(Get|List|Watch|Explain|Plan|Stream)/.test(name))).toEqual([]);
  const others = CoordinatorService.methods
    .map(({ name }) => name)
    .filter((name) => !reads.includes(name));
  expect(others.filter((name) => /^(Get|List|Watch)/.test(name))).toEqual([]);
});
