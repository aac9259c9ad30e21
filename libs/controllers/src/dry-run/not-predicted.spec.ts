import { describeNotPredicted } from './not-predicted.js';

describe('describeNotPredicted', () => {
  const limits = { simulated: 2_000, newReplicas: 20_000, evaluations: 20_000 };
  const none = { replacedLater: 0, beyondNew: 0, beyondEvaluations: 0 };

  it.each([
    { numbers: none, text: '' },
    {
      numbers: { ...none, replacedLater: 1_998_000 },
      text: 'the placement of 1998000 replicas was not predicted: 1998000 are replaced after the 2000 that a plan simulates',
    },
    {
      numbers: { ...none, beyondNew: 980_000 },
      text: 'the placement of 980000 replicas was not predicted: 980000 are beyond the 20000 new or waiting replicas that a plan simulates',
    },
    {
      numbers: { ...none, beyondEvaluations: 1 },
      text: 'the placement of 1 replica was not predicted: 1 is beyond the 20000 evaluations of a node that a plan makes',
    },
    {
      numbers: { replacedLater: 198_000, beyondNew: 0, beyondEvaluations: 1_990 },
      text: 'the placement of 199990 replicas was not predicted: 198000 are replaced after the 2000 that a plan simulates, 1990 are beyond the 20000 evaluations of a node that a plan makes',
    },
  ])('says "$text"', ({ numbers, text }) => {
    expect(describeNotPredicted(numbers, limits)).toBe(text);
  });
});
