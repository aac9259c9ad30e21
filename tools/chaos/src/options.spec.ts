import { SHORT_SCRIPT, parseOptions } from './options.js';

describe('parseOptions', () => {
  it('runs random faults for five minutes with the given seed by default', () => {
    expect(parseOptions([], 7)).toMatchObject({
      faults: undefined,
      minutes: 5,
      seed: 7,
      writers: 50,
      coordinators: 3,
      agents: 5,
      outageMs: 10_000,
    });
  });

  it('repeats a fault as often as the list says', () => {
    const { faults } = parseOptions(['--faults', 'kill-leader*2,step-down'], 1);
    expect(faults).toEqual(['kill-leader', 'kill-leader', 'step-down']);
  });

  it('takes the short script', () => {
    expect(parseOptions(['--short', '--seed', '3'], 1)).toMatchObject({
      faults: SHORT_SCRIPT,
      seed: 3,
    });
  });

  it.each([
    { args: [], timeFactor: 3 },
    { args: ['--strict'], timeFactor: 1 },
    { args: ['--untimed'], timeFactor: undefined },
  ])('judges times by a factor of $timeFactor with $args', ({ args, timeFactor }) => {
    expect(parseOptions(args, 1).timeFactor).toBe(timeFactor);
  });

  it.each([
    { args: ['--strict', '--untimed'], message: '--strict and --untimed exclude each other' },
    { args: ['--faults', 'flood'], message: '--faults: there is no fault flood; there are' },
    { args: ['--faults', 'kill-leader*0'], message: 'give a number from 1 to 999 after *' },
    { args: ['--minutes', 'many'], message: '--minutes many: give a number from 0.1 to 1440' },
    { args: ['--agents', '1'], message: '--agents 1: give a number from 2 to 9' },
    { args: ['--colour'], message: '--colour' },
  ])('refuses $args', ({ args, message }) => {
    expect(() => parseOptions(args, 1)).toThrow(message);
  });
});
