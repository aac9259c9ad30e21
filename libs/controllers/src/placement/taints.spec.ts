import { create } from '@bufbuild/protobuf';
import {
  Taint_Effect as Effect,
  TaintSchema,
  Toleration_Operator as Operator,
  TolerationSchema,
} from '@cloudless/api';
import { isSupportedTaint, toTaint, toToleration } from './taints.js';

describe('isSupportedTaint', () => {
  it.each([
    { name: 'a key and a known effect', key: 'spot', effect: Effect.NO_EXECUTE, supported: true },
    { name: 'no key', key: '', effect: Effect.NO_EXECUTE, supported: false },
    { name: 'an effect of a newer version', key: 'spot', effect: 99 as Effect, supported: false },
  ])('returns $supported for a taint with $name', ({ key, effect, supported }) =>
    expect(isSupportedTaint(create(TaintSchema, { key, effect }))).toBe(supported),
  );
});

describe('toTaint', () => {
  it.each([
    { effect: Effect.NO_SCHEDULE, name: 'NoSchedule' },
    { effect: Effect.PREFER_NO_SCHEDULE, name: 'PreferNoSchedule' },
    { effect: Effect.NO_EXECUTE, name: 'NoExecute' },
  ])('converts the effect $name', ({ effect, name }) =>
    expect(toTaint(create(TaintSchema, { key: 'disk', value: 'slow', effect }))).toEqual({
      key: 'disk',
      value: 'slow',
      effect: name,
    }),
  );
});

describe('toToleration', () => {
  it('keeps the effect of a toleration that names one', () =>
    expect(
      toToleration(
        create(TolerationSchema, {
          key: 'disk',
          operator: Operator.EXISTS,
          effect: Effect.NO_SCHEDULE,
        }),
      ),
    ).toEqual({ key: 'disk', operator: 'Exists', value: '', effect: 'NoSchedule' }));

  it('tolerates every effect when the toleration names none', () =>
    expect(
      toToleration(
        create(TolerationSchema, { key: 'disk', operator: Operator.EQUAL, value: 'slow' }),
      ),
    ).toEqual({ key: 'disk', operator: 'Equal', value: 'slow' }));
});
