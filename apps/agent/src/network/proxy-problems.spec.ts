import { ProxyProblems, UNREACHED_AFTER_MS } from './proxy-problems.js';

const LONG = UNREACHED_AFTER_MS;
const FILE = '/data/network/proxy.err';

describe('the problems of a network proxy', () => {
  it('are none while the proxy starts, and name its file when it does not answer', () => {
    const problems = new ProxyProblems(0, FILE);
    expect(problems.describe(LONG - 1)).toBe('');
    expect(problems.describe(LONG)).toBe(
      'the network proxy does not answer; see /data/network/proxy.err on the node',
    );
  });

  it('are what the proxy reports, until it reports none', () => {
    const problems = new ProxyProblems(0, FILE);
    problems.noteStatus({ connected: true, problems: ['port 53 is taken', 'no route'] }, 1);
    expect(problems.describe(LONG)).toBe('port 53 is taken; no route');
    problems.noteStatus({ connected: true, problems: [] }, LONG);
    expect(problems.describe(LONG)).toBe('');
  });

  it('stay as reported while the proxy is replaced, and are its silence after that', () => {
    const problems = new ProxyProblems(0, FILE);
    problems.noteStatus({ connected: true, problems: ['no route'] }, 1);
    problems.noteSilence(5);
    problems.noteSilence(6);
    expect(problems.describe(LONG + 4)).toBe('no route');
    expect(problems.describe(LONG + 5)).toContain('does not answer');
  });

  it('include a proxy that has reached no coordinator for a while, in all reports since', () => {
    const problems = new ProxyProblems(0, FILE);
    problems.noteStatus({ connected: false, problems: [] }, 100);
    problems.noteStatus({ connected: false, problems: ['no route'] }, 99 + LONG);
    expect(problems.describe(99 + LONG)).toBe('no route');
    expect(problems.describe(100 + LONG)).toBe(
      'the network proxy reaches no coordinator and uses the last services that it knew; no route',
    );
    problems.noteStatus({ connected: true, problems: [] }, 100 + LONG);
    expect(problems.describe(100 + LONG)).toBe('');
  });

  it('are cut after ten, with the number of the others', () => {
    const problems = new ProxyProblems(0, FILE);
    const all = Array.from({ length: 13 }, (_, index) => `p${index}`);
    problems.noteStatus({ connected: true, problems: all }, 1);
    expect(problems.describe(1)).toBe(`${all.slice(0, 10).join('; ')}; and 3 more`);
  });
});
