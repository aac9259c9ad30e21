import { describe, expect, it } from '@jest/globals';
import { combineSignals } from './combine-signals.js';

describe('the signal of combineSignals', () => {
  it.each([0, 1])('is aborted when input %i is aborted', (index) => {
    const inputs = [new AbortController(), new AbortController()] as const;
    const { signal } = combineSignals(inputs[0].signal, inputs[1].signal);
    expect(signal.aborted).toBe(false);
    inputs[index === 0 ? 0 : 1].abort();
    expect(signal.aborted).toBe(true);
  });

  it('is aborted from the beginning when an input is aborted already', () => {
    const live = new AbortController().signal;
    expect(combineSignals(AbortSignal.abort(), live).signal.aborted).toBe(true);
    expect(combineSignals(live, AbortSignal.abort()).signal.aborted).toBe(true);
  });

  it('is not aborted by an input after the release', () => {
    const inputs = [new AbortController(), new AbortController()] as const;
    const { signal, release } = combineSignals(inputs[0].signal, inputs[1].signal);
    release();
    for (const input of inputs) input.abort();
    expect(signal.aborted).toBe(false);
  });
});
