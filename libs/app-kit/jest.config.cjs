module.exports = { preset: '../../jest.preset.js', displayName: 'app-kit' };
