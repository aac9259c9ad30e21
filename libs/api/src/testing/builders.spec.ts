import { WorkloadSchema, checkSpec, checkSupported, validateMessage } from '../index.js';
import { aSpec, aWorkload } from './index.js';

it('aSpec returns a valid spec with the given fields replaced', () => {
  expect(() => checkSpec(aSpec())).not.toThrow();
  expect(() => checkSupported(aSpec())).not.toThrow();
  expect(aSpec({ replicas: 0, command: [] })).toMatchObject({
    $typeName: 'cloudless.api.WorkloadSpec',
    replicas: 0,
    command: [],
  });
  expect(aSpec({ rollout: { maxSurge: 2 } })).toMatchObject({
    command: ['serve'],
    rollout: { $typeName: 'cloudless.api.Rollout', maxSurge: 2 },
  });
});

it('aWorkload returns a valid workload with the given fields replaced', () => {
  expect(() => validateMessage(WorkloadSchema, aWorkload())).not.toThrow();
  expect(aWorkload({ name: 'db', spec: aSpec({ replicas: 2 }) })).toMatchObject({
    namespace: 'default',
    name: 'db',
    generation: 1n,
    spec: { replicas: 2, command: ['serve'] },
  });
});
