import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  Rollout_Strategy as Strategy,
  WorkloadSpec_Mode as Mode,
  checkSameMode,
  checkScalable,
  checkSpec,
  type WorkloadSpecSchema,
} from '../index.js';
import { aSpec } from '../testing/index.js';

type Init = Exclude<MessageInitShape<typeof WorkloadSpecSchema>, { readonly $typeName: string }>;
const global: Init = { command: ['a'], mode: Mode.GLOBAL };

describe('checkSpec for mode GLOBAL', () => {
  it.each<{ name: string; spec: Init; message: string }>([
    {
      name: 'a number of replicas',
      spec: { replicas: 1 },
      message:
        'spec.replicas: is not allowed with GLOBAL, which runs one replica on each matching node',
    },
    {
      name: 'a spread',
      spec: { placement: { spread: { topology: 'zone' } } },
      message:
        'spec.placement.spread: is not allowed with GLOBAL, which runs on each matching node in every zone',
    },
    {
      name: 'strategy BLUE_GREEN',
      spec: { rollout: { strategy: Strategy.BLUE_GREEN } },
      message:
        'spec.rollout.strategy: BLUE_GREEN is not allowed with GLOBAL, which cannot run two replicas on a node; use ROLLING_UPDATE or RECREATE',
    },
    {
      name: 'canary steps',
      spec: { rollout: { steps: [{ replicas: 1 }] } },
      message: 'spec.rollout.steps: canary steps are not allowed with GLOBAL; remove them',
    },
  ])('rejects $name', ({ spec, message }) => {
    expect(() => checkSpec(aSpec({ ...global, ...spec }))).toThrow(message);
    expect(() => checkSpec(aSpec({ ...global, ...spec, mode: Mode.REPLICATED }))).not.toThrow();
  });

  it.each<{ name: string; spec: Init }>([
    { name: 'a command alone', spec: {} },
    { name: 'strategy RECREATE', spec: { rollout: { strategy: Strategy.RECREATE } } },
    {
      name: 'max_unavailable and min_available',
      spec: { rollout: { maxUnavailable: 2, minAvailable: 3 } },
    },
    {
      name: 'zones and a node selector',
      spec: { placement: { zones: ['a'], nodeSelector: { disk: 'ssd' } } },
    },
  ])('accepts $name', ({ spec }) => {
    expect(() => checkSpec(aSpec({ ...global, ...spec }))).not.toThrow();
  });
});

describe('checkScalable', () => {
  it('rejects mode GLOBAL and accepts mode REPLICATED', () => {
    expect(() => checkScalable(aSpec(global))).toThrow(
      'replicas: is not allowed with GLOBAL, which runs one replica on each matching node',
    );
    expect(() => checkScalable(aSpec({ command: ['a'] }))).not.toThrow();
  });
});

describe('checkSameMode', () => {
  it('rejects a change of the mode in both directions', () => {
    const [replicatedSpec, globalSpec] = [aSpec({ command: ['a'] }), aSpec(global)];
    expect(() => checkSameMode(replicatedSpec, globalSpec)).toThrow(
      'spec.mode: cannot change from REPLICATED to GLOBAL; create another workload, and delete this one when the other is ready',
    );
    expect(() => checkSameMode(globalSpec, replicatedSpec)).toThrow(
      'spec.mode: cannot change from GLOBAL to REPLICATED;',
    );
    expect(() => checkSameMode(globalSpec, globalSpec)).not.toThrow();
  });
});
