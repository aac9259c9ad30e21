import { foldSteps } from './fold-steps.js';

const step = (description: string, ready = 3, live = 4) => ({ description, ready, live });
const round = [step('create 1 of version 2', 4, 5), step('stop 1 of version 1', 3, 5)];
const texts = (...steps: Parameters<typeof foldSteps>[0][number][]) =>
  foldSteps(steps).map(({ text }) => text);

describe('foldSteps', () => {
  it('combines equal consecutive steps, with the minimum of ready and the maximum of live replicas', () => {
    expect(
      foldSteps([
        step('create 1 of version 2', 3, 4),
        step('create 1 of version 2', 2, 5),
        step('switch to version 2'),
      ]),
    ).toEqual([
      { text: 'create 2 of version 2', ready: 2, live: 5, steps: 2, blocked: false },
      { text: 'switch to version 2', ready: 3, live: 4, steps: 1, blocked: false },
    ]);
  });

  it('does not combine repeated rounds of a plan with at most 8 lines', () => {
    expect(texts(...round, ...round)).toEqual([
      'create 1 of version 2',
      'stop 1 of version 1',
      'create 1 of version 2',
      'stop 1 of version 1',
    ]);
  });

  it('combines repeated rounds of a plan with more than 8 lines', () => {
    const steps = [
      ...Array.from({ length: 12 }, () => round).flat(),
      step('wait until promoted', 4, 4),
      ...round,
      ...round,
    ];
    expect(foldSteps(steps)).toEqual([
      {
        text: 'create 1 of version 2, stop 1 of version 1 — 12 times',
        ready: 3,
        live: 5,
        steps: 24,
        blocked: false,
      },
      { text: 'wait until promoted', ready: 4, live: 4, steps: 1, blocked: false },
      {
        text: 'create 1 of version 2, stop 1 of version 1 — 2 times',
        ready: 3,
        live: 5,
        steps: 4,
        blocked: false,
      },
    ]);
  });

  it('does not combine steps that wait', () => {
    expect(texts(step('wait 30s'), step('wait 30s'))).toEqual(['wait 30s', 'wait 30s']);
  });

  it('returns lines whose step counts add up to the steps of the plan', () => {
    const steps = Array.from({ length: 200 }, (_, index) =>
      step(index % 3 === 0 ? 'stop 1 of version 1' : 'create 1 of version 2'),
    );
    expect(foldSteps(steps).reduce((sum, line) => sum + line.steps, 0)).toBe(200);
  });
});
