import { DEFAULT_RESPONSE_LIMITS, ResponseLimit, type LimitVerdict } from './response-limit.js';

const limits = { perNetwork: 10, total: 100, maxNetworks: 4 };
const countVerdicts = (verdicts: readonly LimitVerdict[]): Record<LimitVerdict, number> => ({
  send: verdicts.filter((each) => each === 'send').length,
  truncate: verdicts.filter((each) => each === 'truncate').length,
  drop: verdicts.filter((each) => each === 'drop').length,
});
const times = (count: number, check: (index: number) => LimitVerdict): LimitVerdict[] =>
  Array.from({ length: count }, (_, index) => check(index));

describe('ResponseLimit', () => {
  it('sends a bounded number of responses to a network, then truncates half of them', () => {
    const limit = new ResponseLimit(limits);
    const verdicts = times(30, (index) => limit.check(`198.51.100.${index}`, 0));
    expect(countVerdicts(verdicts)).toEqual({ send: 10, truncate: 10, drop: 10 });
    expect(limit.check('198.51.100.1', 100)).toBe('send');
    expect(limit.check('198.51.100.1', 100)).not.toBe('send');
  });

  it('bounds the responses to all networks together', () => {
    const limit = new ResponseLimit({ ...limits, maxNetworks: 1_000 });
    const verdicts = times(500, (index) => limit.check(`10.${index >> 8}.${index & 255}.1`, 0));
    expect(countVerdicts(verdicts)).toEqual({ send: 100, truncate: 0, drop: 400 });
  });

  it('counts a bounded number of networks', () => {
    const limit = new ResponseLimit(limits);
    times(50, (index) => limit.check(`10.0.${index}.1`, index));
    expect(limit.size).toBe(4);
  });

  it('takes an IPv6 /56 for one network', () => {
    const limit = new ResponseLimit(limits);
    const verdicts = times(20, (index) => limit.check(`2001:db8:1:2200::${index}`, 0));
    expect(countVerdicts(verdicts).send).toBe(10);
    expect(limit.size).toBe(1);
  });

  it('sends less than 100 kB per second to the network of a victim of forged questions', () => {
    // 50 responses of at most 1232 bytes a second.
    expect(DEFAULT_RESPONSE_LIMITS.perNetwork * 1_232).toBeLessThan(100_000);
  });
});
