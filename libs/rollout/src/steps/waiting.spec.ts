import { explainSettling } from './waiting.js';

describe('explainSettling', () => {
  it.each([
    { onSilentNodes: 0, text: 'settling' },
    { onSilentNodes: 1, text: 'the node of 1 ready replica does not answer at the moment' },
    { onSilentNodes: 2, text: 'the nodes of 2 ready replicas do not answer at the moment' },
  ])('says "$text" with $onSilentNodes replicas on silent nodes', ({ onSilentNodes, text }) => {
    expect(explainSettling({ onSilentNodes })).toBe(text);
  });
});
