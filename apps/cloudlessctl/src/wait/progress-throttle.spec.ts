import fc from 'fast-check';
import { LINE_INTERVAL_MS, ProgressThrottle } from './progress-throttle.js';

const aState = (text: string, fraction = 0, isFinal = false) => ({ text, fraction, isFinal });

describe('ProgressThrottle', () => {
  it('prints the first line at once, and later lines after 5 s', () => {
    const throttle = new ProgressThrottle();
    expect(throttle.decide(aState('a'), 0)).toEqual({ kind: 'print' });
    expect(throttle.decide(aState('b'), 1_000)).toEqual({ kind: 'later', inMs: 4_000 });
    expect(throttle.decide(aState('c'), 5_000)).toEqual({ kind: 'print' });
  });

  it('drops a line that repeats the line before, also when it is the last one', () => {
    const throttle = new ProgressThrottle();
    throttle.decide(aState('a'), 0);
    expect(throttle.decide(aState('a'), 60_000)).toEqual({ kind: 'drop' });
    expect(throttle.decide(aState('a', 1, true), 60_000)).toEqual({ kind: 'drop' });
  });

  it('prints each further 10 % of progress at once, but nothing when progress is lost and regained', () => {
    const throttle = new ProgressThrottle();
    const decideAt = (fraction: number) => throttle.decide(aState(`${fraction}`, fraction), 0).kind;
    expect([0, 0.05, 0.3, 0.2, 0.31, 0.4].map(decideAt)).toEqual([
      ...['print', 'later', 'print'],
      ...['later', 'later', 'print'],
    ]);
  });

  it('prints the last line at once', () => {
    const throttle = new ProgressThrottle();
    throttle.decide(aState('a'), 0);
    expect(throttle.decide(aState('b', 0, true), 1)).toEqual({ kind: 'print' });
  });

  it('prints at most one line in 5 s besides the first, the last and ten for progress', () => {
    const arbStates = fc.array(
      fc.record({ fraction: fc.double({ min: 0, max: 1, noNaN: true }), afterMs: fc.nat(3_000) }),
      { maxLength: 400 },
    );
    fc.assert(
      fc.property(arbStates, (states) => {
        const throttle = new ProgressThrottle();
        let nowMs = 0;
        let lines = 0;
        states.forEach(({ fraction, afterMs }, index) => {
          nowMs += afterMs;
          const state = aState(`line ${index}`, fraction, index === states.length - 1);
          if (throttle.decide(state, nowMs).kind === 'print') lines += 1;
        });
        expect(lines).toBeLessThanOrEqual(12 + Math.floor(nowMs / LINE_INTERVAL_MS));
      }),
    );
  });

  it('prints at most 12 lines for 100 replicas that become ready within 5 s', () => {
    const throttle = new ProgressThrottle();
    const lines = Array.from({ length: 101 }, (_, ready) =>
      throttle.decide(aState(`${ready} of 100 ready`, ready / 100), ready * 49),
    ).filter(({ kind }) => kind === 'print');
    expect(lines).toHaveLength(11);
  });
});
