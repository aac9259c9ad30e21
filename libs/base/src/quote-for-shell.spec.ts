import { quoteForShell } from './quote-for-shell.js';

describe('quoteForShell', () => {
  it.each([
    ['plain', 'plain'],
    ['--limit=8', '--limit=8'],
    ['two words', "'two words'"],
    ["it's", "'it'\\''s'"],
    ['$HOME', "'$HOME'"],
    ['', "''"],
    ['"a" `date` \\ \n * ~ {b,c} #', `'"a" \`date\` \\ \n * ~ {b,c} #'`],
  ])('returns %j as %s', (word, shown) => {
    expect(quoteForShell(word)).toBe(shown);
  });
});
