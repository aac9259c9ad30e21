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
)('$rpc has a lane', ({ method }) => {
  expect(LANES).toContain(classOfRpc(method)?.lane);
});

it('what agents live by is control, what takes load away goes before other writes', () => {
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

it('what only reads is read', () => {
  const reads = lanesOf('read');
  expect(reads.filter((name) => !/^(Get|List|Watch|Explain|Plan|Stream)/.test(name))).toEqual([]);
  const others = CoordinatorService.methods
    .map(({ name }) => name)
    .filter((name) => !reads.includes(name));
  expect(others.filter((name) => /^(Get|List|Watch)/.test(name))).toEqual([]);
});
