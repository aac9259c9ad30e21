module.exports = { preset: '../../jest.preset.js', displayName: 'dev-cluster' };
